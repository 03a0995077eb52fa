"use strict";
// The page around world.js: who plays, what is drawn, what the reader may move and guess.

const STEPS_A_SECOND = 9, FASTER = 4, HALF_VIEW = 0.58, TAP = 6, TRAIL = 24;
const find = (selector) => document.querySelector(selector);
const canvas = find("canvas"), brush = canvas.getContext("2d");
const draw = chance(location.hash.slice(1) || Date.now());
const data = { ...DATA, weights: World.weights(DATA.explorer), learned: DATA.learned.map(World.weights) };
const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
const page = {
  who: "explorer", landmarks: data.layout.map((point) => [...point]), moved: false, target: 0, found: false, watched: 0,
  paused: still, faster: false, world: null, player: null, before: [], trails: [], pays: [], share: 0, then: 0,
};

const TOLD = {
  random: `Random moves: both agents are on one landmark in ${data.about.random} of 75 steps on average. A learner that waits
    for such luck settles for ½.`,
  explorer: `The explorer was trained on other maps and knows no target. It leads both agents from landmark to landmark; a
    ring is what is left to visit. One of its visits pays 1, and that is what a learner needs to see.`,
  learned: `This team has learned on this map with one hidden target, while an explorer played some of its episodes. It goes
    there and stays.`,
};

function begin() {
  page.world = World.create(data.world, page.landmarks, page.target, draw);
  page.player = page.who === "explorer" ? explorer(data, drawWish(data, draw))
    : page.who === "learned" ? learned(data, page.target) : random(draw);
  page.before = page.world.agents.map(({ at }) => [...at]);
  page.trails = page.world.agents.map(() => []);
  page.pays = [];
}

function advance() {
  if (page.world.time >= data.world.horizon) begin();
  page.before = page.world.agents.map(({ at }) => [...at]);
  page.before.forEach((at, agent) => {
    page.trails[agent].push(at);
    if (page.trails[agent].length > TRAIL) page.trails[agent].shift();
  });
  page.pays.push(World.step(page.world, page.player.act(World.observe(page.world), () => gumbel(draw))));
  page.watched += 1;
  report();
}

// Words and bars beside the picture.
function report() {
  const bars = page.pays.map((pay, step) =>
    pay ? `<rect x="${step}" y="${1 - pay}" width=".8" height="${pay}" fill="var(--${pay === 1 ? "full" : "half"})"/>` : "");
  find(".pay").innerHTML = bars.join("");
  const sum = page.pays.reduce((total, pay) => total + pay, 0);
  find("[data-sum]").textContent = `paid in this episode: ${sum.toFixed(1)}`;
  find("[data-steps]").textContent = `step ${page.world.time} of ${data.world.horizon}`;
}

function say(words) {
  find("[data-verdict]").textContent = words;
}

function choose(who) {
  page.who = who;
  for (const button of document.querySelectorAll("[data-player]")) {
    button.setAttribute("aria-checked", String(button.dataset.player === who));
    button.tabIndex = button.dataset.player === who ? 0 : -1;
  }
  find("[data-told]").textContent = TOLD[who];
  if (who === "learned" && page.moved) say("Learned teams know one map by heart: put the landmarks back to see it.");
  else if (!page.found) say("Where is the target? Tap a landmark.");
  begin();
  report();
}

function hide() {
  page.target = (page.target + 1 + Math.floor(draw() * (data.layout.length - 1))) % data.layout.length;
  page.found = false;
  page.watched = 0;
  choose(page.who);
}

function guess(place) {
  if (page.found) return;
  page.found = place === page.target;
  say(page.found ? `Right, after ${page.watched} steps of watching. The star marks it.` : `Not landmark ${place + 1}. Watch where the team is paid 1.`);
}

const ACTIONS = {
  hide,
  reset() {
    page.landmarks = data.layout.map((point) => [...point]);
    page.moved = false;
    place();
    choose(page.who);
  },
  pause() { page.paused = !page.paused; },
  faster() { page.faster = !page.faster; },
};

// A landmark to a point; those in its way are pushed aside, and none leaves the picture.
function move(number, to) {
  const least = 2.05 * data.world.radius, edge = HALF_VIEW - data.world.radius;
  const inside = (value) => Math.max(-edge, Math.min(edge, value));
  page.landmarks[number] = to.map(inside);
  for (let round = 0; round < 20; round++) {
    page.landmarks.forEach((one, first) => page.landmarks.forEach((other, second) => {
      const off = [other[0] - one[0], other[1] - one[1]], apart = Math.hypot(...off) || 1e-6;
      if (first === second || second === number || apart >= least) return;
      page.landmarks[second] = other.map((value, axis) => inside(value + (off[axis] / apart) * (least - apart)));
    }));
  }
  page.world.landmarks = page.landmarks.map((point) => [...point]);
  page.moved = true;
  place();
  if (page.who === "learned") choose(page.who);
}

const across = (x) => 50 * (1 + x / HALF_VIEW), down = (y) => 50 * (1 - y / HALF_VIEW);

function place() {
  [...find(".landmarks").children].forEach((button, number) => {
    const [x, y] = page.landmarks[number];
    Object.assign(button.style, { left: `${across(x)}%`, top: `${down(y)}%` });
  });
}

const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

function addLandmark(number) {
  const button = document.createElement("button");
  button.setAttribute("aria-label", `landmark ${number + 1}: enter guesses it, arrows move it`);
  button.style.width = button.style.height = `${100 * data.world.radius / HALF_VIEW}%`;
  let from = null;
  button.addEventListener("pointerdown", (event) => {
    button.setPointerCapture(event.pointerId);
    from = { x: event.clientX, y: event.clientY, at: page.landmarks[number], far: false };
  });
  button.addEventListener("pointermove", (event) => {
    if (!from) return;
    const x = event.clientX - from.x, y = event.clientY - from.y, unit = 2 * HALF_VIEW / canvas.clientWidth;
    from.far ||= Math.hypot(x, y) > TAP;
    if (from.far) move(number, [from.at[0] + x * unit, from.at[1] - y * unit]);
  });
  button.addEventListener("pointerup", () => {
    if (from && !from.far) guess(number);
    from = null;
  });
  button.addEventListener("pointercancel", () => (from = null));
  button.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") guess(number);
    else if (KEYS[event.key]) move(number, page.landmarks[number].map((value, axis) => value + 0.03 * KEYS[event.key][axis]));
    else return;
    event.preventDefault();
  });
  find(".landmarks").append(button);
}

// The picture: everything in units of the world, from the middle.
function paint() {
  const size = canvas.clientWidth, sharp = Math.min(devicePixelRatio || 1, 2), style = getComputedStyle(document.body);
  if (canvas.width !== Math.round(size * sharp)) canvas.width = canvas.height = Math.round(size * sharp);
  const color = (name) => style.getPropertyValue(`--${name}`);
  const unit = canvas.width / (2 * HALF_VIEW), x = (value) => (value + HALF_VIEW) * unit, y = (value) => (HALF_VIEW - value) * unit;
  const disc = (at, radius, fill) => {
    brush.beginPath();
    brush.arc(x(at[0]), y(at[1]), radius * unit, 0, 7);
    brush.fillStyle = fill;
    brush.fill();
  };
  brush.clearRect(0, 0, canvas.width, canvas.height);
  const places = World.occupied(page.world), pay = page.pays.at(-1) || 0;
  const visited = page.who === "explorer" ? page.player.best : null;
  page.landmarks.forEach((at, number) => {
    const paid = pay && places.includes(number);
    if (paid) disc(at, data.world.radius * 1.18, color(pay === 1 ? "full" : "half"));
    disc(at, data.world.radius, color("disc"));
    brush.lineWidth = 1.5 * sharp;
    brush.strokeStyle = color("rim");
    brush.stroke();
    if (visited) ring(x(at[0]), y(at[1]), 0.8 * data.world.radius * unit, 1 - visited[number], 0.016 * unit, color("soft"));
    if (page.found && number === page.target) star(x(at[0]), y(at[1]), 0.6 * data.world.radius * unit, color("full"));
  });
  page.world.agents.forEach(({ at }, agent) => {
    const fill = color(agent ? "second" : "first");
    page.trails[agent].forEach((point, age) => {
      brush.globalAlpha = 0.35 * (age + 1) / TRAIL;
      disc(point, 0.4 * data.world.agent_size, fill);
    });
    brush.globalAlpha = 1;
    const now = at.map((value, axis) => page.before[agent][axis] + page.share * (value - page.before[agent][axis]));
    const edge = HALF_VIEW - 0.02, away = Math.max(Math.abs(now[0]), Math.abs(now[1])) > edge + data.world.agent_size;
    if (away) disc(now.map((value) => Math.max(-edge, Math.min(edge, value))), 0.4 * data.world.agent_size, fill);
    else disc(now, data.world.agent_size, fill);
  });
}

function ring(x, y, radius, share, width, color) {
  if (share < 0.01) return;
  brush.beginPath();
  brush.arc(x, y, radius, -Math.PI / 2, -Math.PI / 2 + 2 * Math.PI * share);
  brush.lineWidth = width;
  brush.strokeStyle = color;
  brush.stroke();
}

function star(x, y, radius, color) {
  brush.beginPath();
  for (let point = 0; point < 10; point++) {
    const length = point % 2 ? 0.42 * radius : radius, angle = (point / 5 - 0.5) * Math.PI;
    brush.lineTo(x + length * Math.cos(angle), y + length * Math.sin(angle));
  }
  brush.fillStyle = color;
  brush.fill();
}

function frame(now) {
  const passed = Math.min(now - page.then, 100) / 1000;
  page.then = now;
  if (!page.paused) {
    page.share += passed * STEPS_A_SECOND * (page.faster ? FASTER : 1);
    while (page.share >= 1) {
      page.share -= 1;
      advance();
    }
  }
  paint();
  requestAnimationFrame(frame);
}

function start() {
  const { horizon } = data.world;
  find(".pay").setAttribute("viewBox", `0 0 ${horizon} 1`);
  find(".pay").setAttribute("aria-label", "pay, step by step");
  find("[data-about]").innerHTML = `The nets run in this page. Trained with <code>${data.about.command}</code>.`;
  data.layout.forEach((_, number) => addLandmark(number));
  for (const button of document.querySelectorAll("[data-player]")) {
    button.addEventListener("click", () => choose(button.dataset.player));
    button.addEventListener("keydown", (event) => {
      const way = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!way) return;
      const all = [...button.parentNode.children], next = all[(all.indexOf(button) + way + all.length) % all.length];
      choose(next.dataset.player);
      next.focus();
      event.preventDefault();
    });
  }
  for (const button of document.querySelectorAll("[data-do]")) {
    button.addEventListener("click", () => {
      ACTIONS[button.dataset.do]();
      if (button.dataset.do in page) button.setAttribute("aria-pressed", String(page[button.dataset.do]));
      find("[data-do=pause]").setAttribute("aria-pressed", String(page.paused));
    });
  }
  find("[data-do=pause]").setAttribute("aria-pressed", String(page.paused));
  place();
  hide();
  requestAnimationFrame(frame);
}

start();
