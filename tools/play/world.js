"use strict";
// The particle world, the explorer and the learned teams, number by number as in mesax; needs no page.
//
// step(world)            src/mesax/envs/particle_climb.py, particles.py
// explorer(data, wish)   src/mesax/rewards/coverage.py: Told over src/mesax/nets/entities.py, paid by
//                        src/mesax/ours/learned_reward.py; tests/docs/test_play_page.py compares all of it with Python

const DIRECTIONS = [[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]];

const World = {
  // Weights are whole numbers and a scale: by name, as {shape, numbers}.
  weights(packed) {
    const found = {};
    for (const [name, { shape, scale, bits, data }] of Object.entries(packed)) {
      const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
      const whole = bits === 8 ? new Int8Array(bytes.buffer) : new Int16Array(bytes.buffer);
      found[name] = { shape, numbers: Float32Array.from(whole, (value) => Math.fround(value * scale)) };
    }
    return found;
  },

  // Landmarks, target, and where the agents are and how they move.
  create(settings, landmarks, target, random) {
    const world = { settings, landmarks: landmarks.map((point) => [...point]), target, agents: [], time: 0 };
    for (let agent = 0; agent < settings.num_agents; agent++) {
      const near = world.landmarks[Math.floor(random() * landmarks.length)];
      const limit = 2 * Math.SQRT2 * settings.difficulty;
      const off = near.map((middle) => settings.start_range * (2 * random() - 1) - middle);
      const shrink = Math.min(1, limit / Math.hypot(...off));
      world.agents.push({ at: near.map((middle, axis) => middle + shrink * off[axis]), speed: [0, 0] });
    }
    return world;
  },

  // What each agent sees: offsets to all landmarks, then to the other agents.
  observe(world) {
    return world.agents.map(({ at }, me) => {
      const others = world.agents.filter((_, number) => number !== me).map((other) => other.at);
      return [...world.landmarks, ...others].flatMap(([x, y]) => [x - at[0], y - at[1]]);
    });
  },

  // Which landmark each agent is on, or -1.
  occupied(world) {
    const { radius } = world.settings;
    return world.agents.map(({ at }) =>
      world.landmarks.findIndex(([x, y]) => (x - at[0]) ** 2 + (y - at[1]) ** 2 < radius ** 2));
  },

  reward(world) {
    const places = World.occupied(world);
    if (places.includes(-1)) return 0;
    const there = places.filter((place) => place === world.target).length;
    return there === world.settings.count ? 1 : there === 0 ? 1 - world.settings.delta : 0;
  },

  // Push every agent in its direction; the reward belongs to the place reached.
  step(world, actions) {
    const { acceleration, time_step: time, damping } = world.settings;
    world.agents.forEach(({ at, speed }, agent) => {
      for (const axis of [0, 1]) {
        speed[axis] = speed[axis] * (1 - damping) + acceleration * DIRECTIONS[actions[agent]][axis] * time;
        at[axis] += time * speed[axis];
      }
    });
    world.time += 1;
    return World.reward(world);
  },
};

const relu = (values) => values.map((value) => Math.max(value, 0));
const largest = (values) => values.reduce((best, value, index) => (value > values[best] ? index : best), 0);
const withLength = (vector) => [...vector, Math.sqrt(vector.reduce((sum, value) => sum + value * value, 1e-8))];
const acrossRows = (columns, pick) => columns[0].map((_, index) => pick(columns.map((column) => column[index])));
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const meanAndMax = (rows) => [...acrossRows(rows, mean), ...acrossRows(rows, (values) => Math.max(...values))];

// One layer: [inputs] in, [outputs] out; of stacked layers, number `which`.
function dense(weights, name, input, which = 0) {
  const { shape, numbers } = weights[`${name}.weight`];
  const [inputs, outputs] = shape.slice(-2);
  const first = which * inputs * outputs;
  const result = Array.from(weights[`${name}.bias`].numbers.subarray(which * outputs, (which + 1) * outputs));
  for (let from = 0; from < inputs; from++) {
    const value = input[from];
    if (value === 0) continue;
    const row = first + from * outputs;
    for (let to = 0; to < outputs; to++) result[to] += value * numbers[row + to];
  }
  return result;
}

const pairsOf = (numbers) => Array.from({ length: numbers.length / 2 }, (_, pair) => numbers.slice(2 * pair, 2 * pair + 2));

// How near the team is to being paid at each landmark, as the model has learned it: between 0 and 1.
function nearness(data, observations) {
  const { weights, reward } = data;
  const landmarks = data.layout.length;
  const entity = (place) => {
    const tokens = observations.map((seen) => {
      const hidden = relu(dense(weights, ".state.model.first", withLength(seen.slice(2 * place, 2 * place + 2))));
      return relu(dense(weights, ".state.model.second", hidden));
    });
    const ranked = tokens[0].map((_, unit) => tokens.map((token) => token[unit]).sort((a, b) => b - a));
    const second = Math.min(1, tokens.length - 1);
    return relu(dense(weights, ".state.model.pool", [
      ...ranked.map(mean), ...ranked.map((row) => row[0]), ...ranked.map((row) => row[second]),
      ...ranked.map((row) => row[row.length - 1]),
    ]));
  };
  const own = Array.from({ length: landmarks }, (_, place) => entity(place));
  return own.map((mine, place) => {
    const others = own.filter((_, other) => other !== place);
    const context = [...acrossRows(others, mean), ...acrossRows(others, (values) => Math.max(...values))];
    const hidden = relu(dense(weights, ".state.model.full[0]", [...mine, ...context]));
    const below = weights[".state.reference"].numbers[0] - dense(weights, ".state.model.full[1]", hidden)[0];
    return 1 / (1 + Math.max(below - reward.distance_threshold, 0) / reward.width);
  });
}

// The net over landmarks and other agents: how much it is for each action.
function entityNet(weights, landmarks, seen, told) {
  const net = ".policy.actors.team.nets";
  const points = pairsOf(seen.slice(0, 2 * landmarks)), others = pairsOf(seen.slice(2 * landmarks));
  const first = points.map((point, place) => {
    const pairs = others.map((other) =>
      relu(dense(weights, `${net}.pair`, withLength([point[0] - other[0], point[1] - other[1]]))));
    const ranks = told.flatMap((values) => [values[place], 0, values[place]]);
    return relu(dense(weights, `${net}.first`, [...withLength(point), ...ranks, ...meanAndMax(pairs)]));
  });
  const pooled = meanAndMax(first);
  const tokens = first.map((token) => relu(dense(weights, `${net}.second`, [...token, ...pooled])));
  const scores = tokens.map((token) => dense(weights, `${net}.attention`, token)[0]);
  const top = Math.max(...scores), raised = scores.map((score) => Math.exp(score - top));
  const total = raised.reduce((sum, value) => sum + value, 0);
  const attended = acrossRows(tokens, (values) =>
    values.reduce((sum, value, place) => sum + value * raised[place] / total, 0));
  return dense(weights, `${net}.head`, [...attended, ...meanAndMax(tokens)]);
}

// An explorer in the middle of an episode. `wish` says what each landmark is worth to it; `lots()` is Gumbel noise.
function explorer(data, wish) {
  const dwell = wish.map(() => 0), best = wish.map(() => 0);
  let moved = false;
  return {
    best,
    demand: () => wish.map((worth, place) => worth * (1 - best[place])),
    logits(observations) {
      const near = moved ? nearness(data, observations) : wish.map(() => 0);
      if (moved) {
        near.forEach((value, place) => {
          dwell[place] = data.reward.stay * dwell[place] + (1 - data.reward.stay) * value;
          best[place] = Math.max(best[place], dwell[place]);
        });
      }
      moved = true;
      const told = [this.demand(), near];
      return observations.map((seen) => entityNet(data.weights, data.layout.length, seen, told));
    },
    act(observations, lots) {
      return this.logits(observations).map((row) => largest(row.map((value) => value + lots())));
    },
  };
}

// What a team has learned with one hidden target: a net for each agent, which also sees what changed.
function learned(data, target) {
  const weights = data.learned[target];
  let last = null;
  return {
    logits(observations) {
      const before = last ?? observations;
      last = observations;
      return observations.map((seen, agent) => {
        const change = seen.map((value, index) => data.factor * (value - before[agent][index]));
        let hidden = [...change, ...seen];
        for (const layer of [0, 1]) hidden = relu(dense(weights, `.actors.nets.net.layers[${layer}]`, hidden, agent));
        return dense(weights, ".actors.nets.net.head", hidden, agent);
      });
    },
    act(observations) {
      return this.logits(observations).map(largest);
    },
  };
}

// Every agent moves as chance has it.
function random(draw) {
  return { act: (observations) => observations.map(() => Math.floor(draw() * DIRECTIONS.length)) };
}

// What each landmark is worth to an explorer in one episode: an order of them, the first counts most.
function drawWish(data, draw) {
  const lots = data.layout.map(() => draw());
  return lots.map((lot) => data.reward.wish_decay ** lots.filter((other) => other < lot).length);
}

const gumbel = (draw) => -Math.log(-Math.log(draw() || 1e-12));

// Numbers between 0 and 1 from a seed (mulberry32).
function chance(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

// An episode from given starts with given chance, as tests compare it with Python: all that happens, step by step.
function replay(data, given) {
  const world = World.create(data.world, data.layout, given.target, () => 0.5);
  world.agents.forEach((agent, number) => (agent.at = [...given.starts[number]]));
  const player = given.wish ? explorer(data, given.wish) : learned(data, given.target);
  return given.lots.map((lots) => {
    const logits = player.logits(World.observe(world));
    const actions = logits.map((row, agent) => largest(row.map((value, index) => value + lots[agent][index])));
    const reward = World.step(world, actions);
    return { logits, actions, reward, at: world.agents.map(({ at }) => [...at]) };
  });
}

if (typeof module !== "undefined") module.exports = { World, replay };
