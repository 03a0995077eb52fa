// The episode player: shows scenes (see rendering/scene.py) and knows nothing of the worlds they come from.

const PARTS = 1000; // coordinates of a scene
const AGENTS = ["#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a8a8a"];
const SPEEDS = [["0.5", "½×"], ["1", "1×"], ["2", "2×"], ["4", "4×"]];

/** A color of the style sheet as the canvas understands it. */
function ink(name) {
  const probe = document.getElementById("ink");
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

/** A canvas in device pixels, ready to draw on in CSS pixels. */
function sized(canvas, width, height) {
  const density = Math.min(3, devicePixelRatio || 1);
  canvas.width = Math.round(width * density);
  canvas.height = Math.round(height * density);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const brush = canvas.getContext("2d");
  brush.setTransform(density, 0, 0, density, 0, 0);
  brush.clearRect(0, 0, width, height);
  brush.lineJoin = brush.lineCap = "round";
  return brush;
}

function player(host, sources) {
  let recorded = null;
  let play = null; // who plays which task
  let stage = null;
  let at = 0; // moment, counted over all episodes
  let timer = null;
  let speed = 1;
  const wish = { policy: null, task: null };
  const arena = element("canvas", { className: "arena" });
  const strip = element("canvas", { className: "strip" });
  const traces = element("canvas", { className: "strip" });
  const slider = element("input", { type: "range", min: 0, step: 1, value: 0, "aria-label": "Moment" });
  const go = element("button", { type: "button", className: "go", textContent: "▶ play" });
  const now = element("p", { className: "now", role: "status" });
  const about = element("p", { className: "note" });
  const places = element("div", { className: "places" });
  const who = element("span", { className: "bar" });
  const bar = element("div", { className: "bar" });
  if (sources.length > 1) bar.append(selection("run", sources.map((one) => one.label), (index) => { open(index); paint(); }));
  bar.append(who);
  const back = element("button", { type: "button", textContent: "‹", title: "one moment back" });
  const forth = element("button", { type: "button", textContent: "›", title: "one moment on" });
  back.addEventListener("click", () => { stop(); move(at - 1); });
  forth.addEventListener("click", () => { stop(); move(at + 1); });
  const buttons = element("div", { className: "bar" }, go, back, forth,
    segmented("Speed", SPEEDS, "1", (value) => { speed = Number(value); }));
  host.append(bar, element("div", { className: "stage" }, arena,
    element("div", { className: "side" }, now, places, strip, traces, slider, buttons, about)));

  const chosen = (list, property, value) => list.find((one) => one[property] === value) ?? list[0];
  const starts = () => play.takes.reduce((sums, take) => [...sums, last(sums) + take.steps.length], [0]);
  /** Episode and moment in it. */
  function where() {
    const begins = starts();
    let episode = 0;
    while (episode < play.takes.length - 1 && begins[episode + 1] <= at) episode += 1;
    return { episode, moment: at - begins[episode], begin: begins[episode], total: last(begins) };
  }

  function open(index) {
    recorded = data(sources[index].source);
    choose();
  }
  /** The wished policy and task, as far as this run has them. */
  function choose() {
    const policies = [...new Set(recorded.plays.map((one) => one.policy))];
    const policy = policies.includes(wish.policy) ? wish.policy : policies.find((name) => name.startsWith("explorer")) ?? policies[0];
    const alike = recorded.plays.filter((one) => one.policy === policy);
    play = chosen(alike, "task", wish.task);
    stage = recorded.stages[play.stage];
    const policyChoice = selection("who plays", policies.map(spoken), (index) => { wish.policy = policies[index]; wish.task = play.task; choose(); paint(); });
    const taskChoice = selection("task", alike.map((one) => `${one.task}: ${recorded.tasks[one.task]}`), (index) => { wish.task = alike[index].task; wish.policy = policy; choose(); paint(); });
    policyChoice.querySelector("select").value = String(policies.indexOf(policy));
    taskChoice.querySelector("select").value = String(alike.indexOf(play));
    who.replaceChildren(policyChoice, taskChoice);
    at = 0;
    slider.max = String(where().total - 1);
  }
  const spoken = (name) => ({ final: "learned policy", uniform: "random play" })[name] ?? name.replace("-", " ");

  function move(to) {
    at = Math.max(0, Math.min(where().total - 1, to));
    paint();
  }
  function stop() {
    clearTimeout(timer);
    timer = null;
    go.textContent = "▶ play";
  }
  function tick() {
    if (at >= where().total - 1) return stop();
    move(at + 1);
    const { episode, moment } = where();
    const length = play.takes[episode].steps.length;
    const pause = Math.max(30, Math.min(450, 5000 / length)) * (moment === length - 1 && length > 8 ? 8 : 1);
    timer = setTimeout(tick, pause / speed);
  }
  go.addEventListener("click", () => {
    if (timer !== null) return stop();
    if (at >= where().total - 1) at = 0;
    go.textContent = "❚❚ pause";
    tick();
  });
  slider.addEventListener("input", () => { stop(); move(Number(slider.value)); });
  for (const canvas of [strip, traces]) {
    const scrub = (event) => {
      if (event.buttons !== 1 && event.type !== "pointerdown") return;
      const bounds = canvas.getBoundingClientRect();
      stop();
      move(Math.round((event.clientX - bounds.left) / bounds.width * (where().total - 1)));
    };
    canvas.addEventListener("pointerdown", scrub);
    canvas.addEventListener("pointermove", scrub);
  }

  function paint() {
    const { episode, moment, begin, total } = where();
    const take = play.takes[episode];
    const step = take.steps[moment];
    const visited = take.visits.filter(([when]) => when <= step);
    slider.value = String(at);
    tell(take, episode, moment, step);
    showPlaces(take, step);
    showArena(take, episode, moment, step, visited);
    showStrip(begin, total, episode);
    traces.hidden = !stage.curves.length;
    if (stage.curves.length) showTraces(total);
    about.textContent = stage.about;
  }

  function tell(take, episode, moment, step) {
    const sum = (list) => list.reduce((total, value) => total + value, 0);
    const share = (value) => number(stage.mean ? value / last(take.steps) : value);
    const parts = [`episode ${episode + 1} of ${play.takes.length}`, `step ${step} of ${last(take.steps)}`];
    if (moment) {
      const made = step - take.steps[moment - 1];
      parts.push(`reward ${number(take.rewards[moment] / made)}`);
    }
    parts.push(`return ${share(sum(take.rewards.slice(0, moment + 1)))} of ${share(sum(take.rewards))}`);
    if (!stage.shapes.some((shape) => shape.place !== undefined)) {
      const known = play.takes.slice(0, episode + 1).flatMap((one, index) => one.visits.filter(([when, place]) => place >= 0 && (index < episode || when <= step)));
      if (known.length) parts.push(`${new Set(known.map(([, place]) => place)).size} distinct visits so far`);
    }
    now.textContent = parts.join(" · ");
  }

  /** Steps at each place so far, in this episode. */
  function showPlaces(take, step) {
    const known = stage.shapes.filter((shape) => shape.place !== undefined);
    places.hidden = !known.length;
    const spent = new Map();
    for (const [index, [when, place]] of take.visits.entries()) {
      const until = Math.min(step + 1, take.visits[index + 1]?.[0] ?? Infinity);
      if (place >= 0 && until > when) spent.set(place, (spent.get(place) ?? 0) + until - when);
    }
    places.replaceChildren(element("span", {}, "visits"), ...known.map((shape) => {
      const steps = spent.get(shape.place) ?? 0;
      const made = element("span", { className: `place ${shape.role}`, title: `${steps} steps at ${shape.label}` },
        element("i", {}), `${shape.label}: ${steps}`);
      made.style.setProperty("--share", Math.min(1, steps / Math.max(1, last(take.steps) / 4)).toFixed(3));
      return made;
    }));
  }

  function showArena(take, episode, moment, step, visited) {
    const moving = take.points.length || stage.chains.length;
    arena.hidden = !moving;
    if (!moving) return;
    const room = Math.min(host.clientWidth, 430);
    const width = stage.aspect > 1 ? room / stage.aspect : room;
    const height = width * Math.max(stage.aspect, 0.12);
    const brush = sized(arena, width, height);
    const x = (part) => part / PARTS * width;
    const y = (part) => part / PARTS * height;
    const been = new Set(visited.map(([, place]) => place));
    const here = last(visited)?.[1];
    for (const shape of stage.shapes) if (shape.step === undefined || shape.step === Math.max(1, step)) drawShape(brush, shape, x, y, been, here);
    for (const [index, role] of stage.chains.entries()) drawChain(brush, role, take.chains[index], take.steps.length, moment, x, y);
    const points = (one, when) => Array.from({ length: one.agents }, (_, agent) => one.points.slice(2 * (when * one.agents + agent), 2 * (when * one.agents + agent) + 2));
    if (!stage.trails && !stage.chains.length)
      for (const earlier of play.takes.slice(0, episode))
        if (moment < earlier.steps.length) points(earlier, Math.max(1, moment)).forEach((point, agent) => dot(brush, point, x, y, 3.2, take.agents === 1 ? ink("mark") : AGENTS[agent % 6], 0.4));
    if (stage.trails) drawTrails(brush, take, moment, x, y);
    points(take, moment).forEach((point, agent) => {
      const color = take.agents === 1 ? ink("mark") : AGENTS[agent % 6];
      dot(brush, point, x, y, stage.chains.length ? 5 : 7, color, 1, ink("page"));
    });
  }

  function drawShape(brush, shape, x, y, been, here) {
    const thin = shape.kind === "disc" || shape.role === "wall" ? 0 : shape.role === "high" ? 5 : 2; // still to be seen
    const [width, height] = [Math.max(thin, x(shape.size[0])), Math.max(thin, y(shape.size[1]))];
    const [left, top] = [x(shape.at[0]) - width / 2, y(shape.at[1]) - height / 2];
    brush.beginPath();
    if (shape.kind === "disc") brush.ellipse(left + width / 2, top + height / 2, width / 2, height / 2, 0, 0, 2 * Math.PI);
    else brush.rect(left, top, width, height);
    if (shape.role === "wall") {
      brush.strokeStyle = ink("soft");
      brush.lineWidth = 2;
      return brush.stroke();
    }
    brush.fillStyle = ink(`area-${shape.role}`);
    brush.fill();
    if (shape.kind === "disc") {
      const visited = been.has(shape.place);
      brush.strokeStyle = shape.place === here ? ink("mark") : visited ? ink("ink") : ink(shape.role === "target" ? "high" : "line");
      brush.lineWidth = shape.place === here ? 3.5 : visited ? 2 : 1.2;
      brush.stroke();
    }
    if (shape.label && width > 12) {
      brush.fillStyle = ink(shape.role === "target" ? "high" : "soft");
      brush.font = `${shape.role === "target" ? "700 " : ""}12px system-ui, sans-serif`;
      brush.textAlign = "center";
      brush.textBaseline = "middle";
      const star = shape.role === "target" && shape.kind === "disc" ? "★ " : "";
      const low = shape.kind === "disc" ? top + height - 10 : top + 9;
      brush.fillText(star + shape.label, left + width / 2, low);
    }
  }

  function drawChain(brush, role, chain, length, moment, x, y) {
    const size = chain.length / length;
    const own = chain.slice(size * moment, size * (moment + 1));
    brush.beginPath();
    for (let index = 0; index < size; index += 2) brush.lineTo(x(own[index]), y(own[index + 1]));
    brush.strokeStyle = ink(role === "target" ? "high" : "body");
    brush.globalAlpha = role === "target" ? 0.35 : 1;
    brush.lineWidth = role === "target" ? 22 : 9;
    brush.stroke();
    brush.globalAlpha = 1;
  }

  function drawTrails(brush, take, moment, x, y) {
    for (let agent = 0; agent < take.agents; agent += 1) {
      brush.strokeStyle = AGENTS[agent % 6];
      brush.lineWidth = 2.2;
      const place = (when) => [x(take.points[2 * (when * take.agents + agent)]), y(take.points[2 * (when * take.agents + agent) + 1])];
      for (let when = 1; when <= moment; when += 1) {
        brush.globalAlpha = Math.max(0.12, 1 - (moment - when) / 30);
        brush.beginPath();
        brush.moveTo(...place(when - 1));
        brush.lineTo(...place(when));
        brush.stroke();
      }
      brush.globalAlpha = 1;
      dot(brush, take.points.slice(2 * agent, 2 * agent + 2), x, y, 4, ink("page"), 1, AGENTS[agent % 6]);
    }
  }

  function dot(brush, [left, top], x, y, radius, color, alpha, rim) {
    if (left === undefined || left < 0) return;
    brush.globalAlpha = alpha;
    brush.beginPath();
    brush.arc(x(left), y(top), radius, 0, 2 * Math.PI);
    brush.fillStyle = color;
    brush.fill();
    if (rim) {
      brush.strokeStyle = rim;
      brush.lineWidth = 1.8;
      brush.stroke();
    }
    brush.globalAlpha = 1;
  }

  /** The rewards of all episodes side by side; what is still to come is pale. */
  function showStrip(begin, total, current) {
    const width = slider.clientWidth || 300;
    const height = 66;
    const brush = sized(strip, width, height);
    const rates = play.takes.flatMap((take) => take.rewards.map((reward, index) => (index ? reward / (take.steps[index] - take.steps[index - 1]) : 0)));
    const most = highest(rates, 1e-9);
    const least = lowest(rates, 0);
    const y = (value) => 16 + (height - 20) * (1 - (value - least) / (most - least));
    const each = width / total;
    brush.font = "11px system-ui, sans-serif";
    for (const [index, rate] of rates.entries()) {
      brush.fillStyle = ink(index <= at ? "high" : "line");
      brush.fillRect(index * each, Math.min(y(rate), y(0)), Math.max(0.6, each - (each > 4 ? 1 : 0)), Math.abs(y(rate) - y(0)));
    }
    const begins = starts();
    brush.fillStyle = ink("soft");
    brush.fillRect(0, y(0), width, 1);
    if (play.takes.length <= 8)
      for (const start of begins.slice(1, -1)) brush.fillRect(start * each, 14, 1, height - 16);
    brush.fillText(`reward, at most ${number(most)}`, 2, 10);
    cursor(brush, (at + 0.5) * each, height);
  }

  /** Curves over time: together if a band says where they ought to be, otherwise a row each. */
  function showTraces(total) {
    const width = slider.clientWidth || 300;
    const each = stage.band ? 106 : 26;
    const height = 24 + each * (stage.band ? 1 : stage.curves.length);
    const brush = sized(traces, width, height);
    const values = play.takes.flatMap((take) => take.curves.flat()).concat(stage.band ?? []);
    const [least, most] = [lowest(values), highest(values)];
    const y = (value, row) => 20 + each * (stage.band ? 0 : row) + (each - 6) * (1 - (value - least) / (most - least || 1));
    if (stage.band) {
      brush.fillStyle = ink("area-target");
      brush.fillRect(0, y(stage.band[1]), width, y(stage.band[0]) - y(stage.band[1]));
    }
    let begin = 0;
    for (const take of play.takes) {
      for (const [index, curve] of take.curves.entries()) {
        brush.strokeStyle = AGENTS[index % 6];
        brush.lineWidth = 1.5;
        brush.beginPath();
        curve.forEach((value, moment) => brush.lineTo((begin + moment + 0.5) / total * width, y(value, index)));
        brush.stroke();
      }
      begin += take.steps.length;
    }
    brush.font = "11px system-ui, sans-serif";
    brush.fillStyle = ink("soft");
    brush.fillText(`${stage.curvesTitle}, ${number(least)} to ${number(most)}`, 2, 11);
    if (!stage.band)
      for (const [index, name] of stage.curves.entries()) {
        brush.fillStyle = AGENTS[index % 6];
        brush.fillText(name, 2, 20 + each * index + 9);
      }
    cursor(brush, (at + 0.5) / total * width, height);
  }

  function cursor(brush, left, height) {
    brush.fillStyle = ink("mark");
    brush.fillRect(left - 1, 0, 2, height);
  }

  open(0);
  return paint;
}

begin();
