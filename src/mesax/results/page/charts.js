"use strict";
// Learning curves, final returns and coverage of a report. All text from runs goes through textContent: it is never markup.

const SVG = document.getElementById("ink").namespaceURI;
const view = { statistic: "mean", scale: "raw", single: true };
const redraws = new Set(); // what to draw again when the view, the theme or the width changes

/** An HTML element with properties and children; strings among these are text. */
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** An SVG element added to a parent. */
function draw(parent, tag, attributes = {}, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

const data = (id) => JSON.parse(document.getElementById(id).textContent);
const last = (list) => list[list.length - 1];
const lowest = (list, start = Infinity) => list.reduce((low, value) => Math.min(low, value), start);
const highest = (list, start = -Infinity) => list.reduce((high, value) => Math.max(high, value), start);

function number(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) < 99.995 ? value.toFixed(2) : Math.round(value).toLocaleString("en-US");
}

function count(value) {
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (Math.abs(value) >= 0.9995 * size) return Number((value / size).toPrecision(3)) + unit;
  return String(Number(value.toPrecision(3)));
}

/** A number of steps per episode, which may be a hundredth. */
function small(value) {
  if (value === null || value === 0) return value === null ? "–" : "0";
  return value < 0.095 ? value.toPrecision(1) : value.toFixed(value < 9.95 ? 1 : 0);
}

/** About so many round numbers between two ends. */
function ticks(low, high, wanted) {
  const rough = (high - low) / wanted || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + 1e-9 * step; at += 1) found.push(at * step);
  return found;
}

/** A choice of which one is pressed. */
function segmented(name, options, chosen, choose) {
  const group = element("div", { className: "segmented", role: "group", "aria-label": name });
  const buttons = options.map(([value, text]) => {
    const button = element("button", { type: "button", textContent: text, "aria-pressed": String(value === chosen) });
    button.addEventListener("click", () => {
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      choose(value);
    });
    return button;
  });
  group.append(...buttons);
  return group;
}

/** A button that is pressed or not. */
function toggle(properties, pressed, change) {
  const button = element("button", { type: "button", ...properties, "aria-pressed": String(pressed) });
  button.addEventListener("click", () => {
    const now = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(now));
    change(now);
  });
  return button;
}

function selection(name, labels, change) {
  const options = labels.map((label, index) => element("option", { value: String(index) }, label));
  const made = element("select", { "aria-label": name }, ...options);
  made.addEventListener("change", () => change(Number(made.value)));
  return element("label", { className: "choice" }, element("span", {}, name), made);
}

function refresh() {
  for (const again of redraws) again();
}

/** Build something once it comes near the screen, and keep it drawn; `build` returns how to draw it again. */
function whenSeen(host, build) {
  const begin = () => {
    if (host.dataset.drawn) return;
    host.dataset.drawn = "yes";
    const again = build();
    redraws.add(again);
    again();
    new ResizeObserver(() => again()).observe(host);
  };
  const watch = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) {
      watch.disconnect();
      begin();
    }
  }, { rootMargin: "400px" });
  watch.observe(host);
  addEventListener("beforeprint", begin);
}

const scaled = (value, family) => (view.scale === "normalized" && family.optimal ? value / family.optimal : value);

/** Names of methods that hide and show what belongs to them. */
function legend(family, hidden, again) {
  const row = element("div", { className: "legend" });
  for (const [index, method] of family.methods.entries()) {
    const chip = toggle({ className: "chip" }, true, (shown) => {
      if (shown) hidden.delete(index);
      else hidden.add(index);
      again();
    });
    chip.style.setProperty("--c", method.color);
    chip.append(element("i", {}), method.label);
    row.append(chip);
  }
  return row;
}

/** What took no step is a level, as far as others go. */
const levelled = (band, furthest) => last(band.steps) ? band
  : { ...band, steps: [0, furthest], [view.statistic]: band[view.statistic].map(([value]) => [value, value]) };

/** Learning curves of one family. */
function curves(host, family) {
  const hidden = new Set();
  let group = family.groups[0];
  let hovered = null; // a step
  let pointer = null; // [x, y] inside the picture
  const picture = element("div", { className: "picture", tabIndex: 0, role: "img",
    "aria-label": "Learning curves. Arrow keys read the values at a step." });
  const tip = element("div", { className: "tip", hidden: true, role: "status" });
  const again = () => paint();
  if (family.groups.length > 1)
    host.append(segmented("Tasks", family.groups.map((name) => [name, name || "all tasks"]), group, (value) => {
      group = value;
      again();
    }));
  picture.append(tip);
  host.append(picture, legend(family, hidden, again));

  const shown = () => family.methods.map((method, index) => ({ method, index, band: method.bands[group] }))
    .filter(({ index, band }) => band && band.steps.length && !hidden.has(index));
  const singles = (method) => !view.single ? [] : method.runs
    .map((run, place) => ({ run, place, steps: method.steps[run.steps], values: run.returns[group === "" || run.returns[group] !== true ? group : ""] }))
    .filter(({ values }) => values);

  let frame = null; // scales of the last drawing
  function paint() {
    picture.querySelector("svg")?.remove();
    const width = Math.max(280, picture.clientWidth);
    const height = width < 560 ? 260 : 350;
    const labels = width > 640;
    const there = shown();
    const box = { left: 46, right: width - (labels ? 240 : 6) - 6 * there.length, top: 14, bottom: height - 40 };
    const furthest = highest(there.map(({ band }) => last(band.steps)), 1);
    const entries = there.map((entry) => ({ ...entry, band: levelled(entry.band, furthest) }));
    const spread = entries.flatMap(({ method, index, band }) => [
      ...band[view.statistic][0], ...band[`${view.statistic}End`], ...singles(method).flatMap(({ values }) => values)]);
    const values = spread.map((value) => scaled(value, family));
    const [low, high] = [lowest(values, 0), highest(values, 1.06 * scaled(family.optimal, family))];
    const x = (step) => box.left + (box.right - box.left) * step / furthest;
    const y = (value) => box.bottom - (box.bottom - box.top) * (scaled(value, family) - low) / (high - low || 1);
    frame = { x, y, box, furthest, width, height };
    const svg = draw(picture, "svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" });
    for (const value of ticks(low, high, height < 300 ? 4 : 6)) {
      const at = box.bottom - (box.bottom - box.top) * (value - low) / (high - low || 1);
      draw(svg, "line", { class: "grid", x1: box.left, x2: box.right, y1: at, y2: at });
      draw(svg, "text", { class: "axis", x: box.left - 7, y: at + 4, "text-anchor": "end" }, String(Number(value.toPrecision(6))));
    }
    for (const step of ticks(0, furthest, width < 560 ? 3 : 6))
      draw(svg, "text", { class: "axis", x: x(step), y: box.bottom + 17, "text-anchor": "middle" }, count(step));
    draw(svg, "text", { class: "axis title", x: (box.left + box.right) / 2, y: height - 5, "text-anchor": "middle" }, "environment steps");
    for (const [name, level] of family.levels) {
      draw(svg, "line", { class: "reference", x1: box.left, x2: box.right, y1: y(level), y2: y(level) });
      draw(svg, "text", { class: "axis", x: box.left + 4, y: y(level) - 4 }, name);
    }
    const path = (steps, values) => steps.map((step, at) => `${at ? "L" : "M"}${x(step).toFixed(1)} ${y(values[at]).toFixed(1)}`).join("");
    for (const { method, index, band } of entries) {
      const inside = draw(svg, "g", { style: `--c:${method.color}`, "data-method": index });
      for (const { place, steps, values } of singles(method))
        draw(inside, "path", { class: "single", "data-run": place, d: path(steps, values) });
      draw(inside, "path", { class: "line", d: path(band.steps, band[view.statistic][0]), "stroke-dasharray": dashes(family, index) });
    }
    for (const [place, { method, band }] of entries.entries()) {
      const [value, low, up] = band[`${view.statistic}End`].map(y);
      const at = box.right + 6 + 6 * place;
      const inside = draw(svg, "g", { style: `--c:${method.color}` });
      draw(inside, "line", { class: "ending", x1: at, x2: at, y1: low, y2: up });
      draw(inside, "circle", { class: "dot", cx: at, cy: value, r: 3.5 });
    }
    if (labels) endLabels(svg, entries, box, y);
    hover(svg);
  }

  function endLabels(svg, entries, box, y) {
    const ends = entries.map(({ method, band }) => ({ method, value: band[`${view.statistic}End`][0] }))
      .map((end) => ({ ...end, at: y(end.value) })).sort((one, other) => one.at - other.at);
    for (const [index, end] of ends.entries())
      if (index) end.at = Math.max(end.at, ends[index - 1].at + 15);
    const over = Math.max(0, (last(ends)?.at ?? 0) - box.bottom);
    for (const { method, value, at } of ends) {
      const name = method.label.length > 28 ? `${method.label.slice(0, 27)}…` : method.label;
      draw(svg, "text", { class: "end", style: `--c:${method.color}`, x: box.right + 12 + 6 * entries.length, y: at - over + 4 },
        `${name} ${number(scaled(value, family))}`);
    }
  }

  function hover(svg) {
    tip.hidden = hovered === null || !frame;
    if (tip.hidden) return;
    const { x, y, box, width } = frame;
    draw(svg, "line", { class: "now", x1: x(hovered), x2: x(hovered), y1: box.top, y2: box.bottom });
    const rows = shown().map(({ method, band, index }) => {
      const at = nearest(band.steps, hovered);
      const [value, low, high] = band[view.statistic].map((line) => line[at]);
      draw(svg, "circle", { class: "dot", style: `--c:${method.color}`, cx: x(band.steps[at]), cy: y(value), r: 3.5 });
      return { method, index, value, low, high };
    }).sort((one, other) => other.value - one.value);
    tip.replaceChildren(element("b", {}, `step ${count(hovered)}`), ...rows.map(({ method, value, low, high }) => {
      const row = element("div", {}, element("i", {}), element("span", {}, method.label),
        element("b", {}, number(scaled(value, family))), element("small", {}, `[${number(scaled(low, family))}, ${number(scaled(high, family))}]`));
      row.style.setProperty("--c", method.color);
      return row;
    }));
    const near = closest(svg);
    if (near) tip.append(element("div", { className: "near" }, near));
    const left = x(hovered) + 14 + tip.offsetWidth > width ? x(hovered) - 14 - tip.offsetWidth : x(hovered) + 14;
    tip.style.left = `${Math.max(0, left)}px`;
    tip.style.top = `${box.top + 6}px`;
  }

  /** Point out the single run next to the pointer, and name it. */
  function closest(svg) {
    if (!pointer || !view.single) return null;
    let best = { distance: 24 };
    for (const { method, index } of shown())
      for (const { run, place, steps, values } of singles(method)) {
        const at = nearest(steps, hovered);
        const distance = Math.abs(frame.y(values[at]) - pointer[1]);
        if (distance < best.distance) best = { distance, index, place, text: `${method.label}, ${run.label}: ${number(scaled(values[at], family))}` };
      }
    if (!best.text) return null;
    svg.querySelector(`g[data-method="${best.index}"] [data-run="${best.place}"]`)?.classList.add("near");
    return best.text;
  }

  function steps() {
    return [...new Set(shown().flatMap(({ band }) => band.steps))].sort((one, other) => one - other);
  }
  picture.addEventListener("pointermove", (event) => {
    if (!frame) return;
    const bounds = picture.getBoundingClientRect();
    pointer = [event.clientX - bounds.left, event.clientY - bounds.top];
    const wanted = (pointer[0] - frame.box.left) / (frame.box.right - frame.box.left) * frame.furthest;
    const known = steps();
    hovered = known.length ? known[nearest(known, wanted)] : null;
    paint();
  });
  picture.addEventListener("pointerleave", () => { hovered = pointer = null; paint(); });
  picture.addEventListener("blur", () => { hovered = pointer = null; paint(); });
  picture.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const known = steps();
    if (!move || !known.length) return;
    event.preventDefault();
    const at = hovered === null ? (move > 0 ? 0 : known.length - 1) : nearest(known, hovered) + move;
    hovered = known[Math.min(known.length - 1, Math.max(0, at))];
    pointer = null;
    paint();
  });
  return again;
}

/** Methods that share a color are told apart by their dashes. */
function dashes(family, index) {
  const before = family.methods.slice(0, index).filter((method) => method.color === family.methods[index].color).length;
  return ["none", "7 4", "2 3"][Math.min(before, 2)];
}

function nearest(sorted, wanted) {
  let best = 0;
  for (const [index, value] of sorted.entries()) if (Math.abs(value - wanted) < Math.abs(sorted[best] - wanted)) best = index;
  return best;
}

/** The final return of every task run as a dot, each method's mean with its interval. */
function finals(host, family) {
  return () => {
    host.replaceChildren();
    const width = Math.max(280, host.clientWidth);
    const left = Math.min(235, width * 0.4);
    const high = 30;
    const height = high * family.methods.length + 46;
    const values = family.methods.flatMap((method) => method.runs.map((run) => scaled(run.finals[""], family)));
    const [least, most] = [lowest(values, 0), highest(values, scaled(family.optimal, family))];
    const x = (value) => left + (width - left - 14) * (scaled(value, family) - least) / (most - least || 1);
    const svg = draw(host, "svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "Final return of every task run" });
    for (const value of ticks(least, most, width < 560 ? 4 : 7)) {
      const at = left + (width - left - 14) * (value - least) / (most - least || 1);
      draw(svg, "line", { class: "grid", x1: at, x2: at, y1: 6, y2: height - 36 });
      draw(svg, "text", { class: "axis", x: at, y: height - 20, "text-anchor": "middle" }, String(Number(value.toPrecision(6))));
    }
    draw(svg, "text", { class: "axis title", x: (left + width) / 2, y: height - 4, "text-anchor": "middle" }, "final return");
    for (const [row, method] of family.methods.entries()) {
      const middle = 6 + high * (row + 0.5);
      const inside = draw(svg, "g", { style: `--c:${method.color}` });
      const link = draw(inside, "a", { href: method.href });
      const letters = Math.floor(left / 7.5);
      draw(link, "text", { class: "end", x: left - 10, y: middle + 4, "text-anchor": "end" },
        method.label.length > letters ? `${method.label.slice(0, letters - 1)}…` : method.label);
      for (const [place, run] of method.runs.entries()) {
        const shift = method.runs.length > 1 ? 0.6 * high * (place / (method.runs.length - 1) - 0.5) : 0;
        const dot = draw(inside, "circle", { class: "mark", cx: x(run.finals[""]), cy: middle + shift, r: 3.5 });
        draw(dot, "title", {}, `${run.label}: ${number(scaled(run.finals[""], family))}`);
      }
      const [value, low, up] = method.bands[""][`${view.statistic}End`].map(x);
      draw(inside, "line", { class: "interval", x1: low, x2: Math.max(up, low + 0.5), y1: middle, y2: middle });
      draw(inside, "path", { class: "diamond", d: `M${value - 6} ${middle}L${value} ${middle - 6}L${value + 6} ${middle}L${value} ${middle + 6}Z` });
    }
  };
}

/** How much of every target each visitor sees on every unseen task: the pair that is left out most decides. */
function coverage(host, sources) {
  let shown = data(sources[0].source);
  let visitor = null;
  const table = element("div", { className: "scroll" });
  const who = element("div", {});
  const said = element("p", { className: "note", role: "status" });
  const begin = () => {
    const names = shown.visitors.map((one) => one.name);
    const usual = names.findIndex((name) => name !== "uniform");
    visitor = shown.visitors[Math.max(0, usual)];
    who.replaceChildren(segmented("Visitor", shown.visitors.map((one) => [one, one.name]), visitor, (one) => {
      visitor = one;
      paint();
    }));
    paint();
  };
  const choices = sources.length > 1 ? [selection("run", sources.map((one) => one.label), (index) => {
    shown = data(sources[index].source);
    begin();
  })] : [];
  host.append(element("div", { className: "bar" }, ...choices, who), table, said);
  function paint() {
    const most = highest(shown.visitors.flatMap((one) => one.steps.flat()), 1e-9);
    const cell = (value, title, worst) => {
      const made = element("td", { className: worst ? "worst" : "", title }, small(value));
      made.style.setProperty("--heat", value === null ? 0 : Math.sqrt(value / most).toFixed(3));
      return made;
    };
    const heads = ["unseen task", "worst", "mean", ...visitor.numbers.map((target, at) => (at ? String(target) : `target ${target}`))];
    const head = element("tr", {}, ...heads.map((text) => element("th", {}, text)));
    const rows = visitor.steps.map((steps, task) => {
      const known = steps.filter((value) => value !== null);
      const cells = steps.map((value, at) => {
        const chance = visitor.chance[task][at];
        const told = value === null ? "not played" : `${value.toFixed(2)} steps an episode, in ${Math.round(100 * chance)}% of episodes, longest stay ${visitor.stay[task][at].toFixed(1)}`;
        return cell(value, told, task === visitor.worst.task && visitor.numbers[at] === visitor.worst.target);
      });
      const low = known.length ? lowest(known) : null;
      const mean = known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
      return element("tr", {}, element("td", {}, shown.tasks[task] ?? `task ${task}`),
        cell(low, "the target that is seen least on this task"), cell(mean, "mean over targets"), ...cells);
    });
    table.replaceChildren(element("table", { className: "heat" }, element("thead", {}, head), element("tbody", {}, ...rows)));
    const { worst } = visitor;
    said.textContent = `Steps per episode on each target, before anything is learned there. Left out most: ${small(worst.steps)} steps`
      + ` on target ${worst.target} of task ${worst.task}, seen in ${Math.round(100 * worst.chance)}% of episodes.`;
  }
  begin();
  return () => {};
}

function controls() {
  const bar = document.getElementById("controls");
  const set = (name) => (value) => { view[name] = value; document.body.dataset[name] = value; refresh(); };
  bar.append(
    segmented("Statistic", [["mean", "mean"], ["iqm", "IQM"]], view.statistic, set("statistic")),
    segmented("Scale", [["raw", "raw"], ["normalized", "normalized"]], view.scale, set("scale")),
    toggle({ textContent: "single runs", className: "lone" }, view.single, set("single")),
  );
  const themes = ["auto", "light", "dark"];
  const theme = element("button", { type: "button", className: "lone", textContent: "theme: auto" });
  theme.addEventListener("click", () => {
    const next = themes[(themes.indexOf(document.documentElement.dataset.theme ?? "auto") + 1) % 3];
    document.documentElement.dataset.theme = next;
    theme.textContent = `theme: ${next}`;
    refresh();
  });
  bar.append(theme);
  bar.hidden = false;
}

function begin() {
  controls();
  for (const host of document.querySelectorAll("[data-curves]")) whenSeen(host, () => curves(host, data(host.dataset.curves)));
  for (const host of document.querySelectorAll("[data-finals]")) whenSeen(host, () => finals(host, data(host.dataset.finals)));
  for (const host of document.querySelectorAll("[data-coverage]")) whenSeen(host, () => coverage(host, JSON.parse(host.dataset.coverage)));
  for (const host of document.querySelectorAll("[data-player]")) whenSeen(host, () => player(host, JSON.parse(host.dataset.player)));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);
  let before;
  addEventListener("beforeprint", () => {
    before = document.documentElement.dataset.theme ?? "auto";
    document.documentElement.dataset.theme = "light";
    refresh();
  });
  addEventListener("afterprint", () => { document.documentElement.dataset.theme = before; refresh(); });
}
