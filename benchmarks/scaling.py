"""How cost grows: time and memory against agents, landmarks, actions, tasks, M_*, lanes, workers and nodes of Ray.

    python benchmarks/scaling.py                              all parts, then the table and the figure
    python benchmarks/scaling.py --parts update-agents ...    some; what was measured before stays in the file
    python benchmarks/scaling.py --parts none                 nothing anew: print and draw what the file has

Times are seconds of processor time, the least of several repeats, once compiled. Memory of a program is what its
compiled form asks for (arguments, results, what lies between); memory of a run is the largest process's. An exponent is
the slope of a line through the logarithms. A fixed cost hides growth at small sizes, so the slope between the two
largest sizes stands beside it; for worlds, the slope along agents alone and along landmarks alone.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from mesax.runtime import configure

configure()

import jax  # noqa: E402  (the runtime must be configured first)
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import two_nodes  # noqa: E402

from mesax.envs.climb import ClimbFamily  # noqa: E402
from mesax.experiments.catalogue import experiment as named  # noqa: E402
from mesax.suites.particles.presets import ADDITIVE_LEARNER, LEARNER  # noqa: E402
from mesax.training.loop import LearningLoop, Start  # noqa: E402
from mesax.training.rollout import play  # noqa: E402
from mesax.types import Elapsed  # noqa: E402
from paper.quoting.blocks import Evidence  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results" / "scaling.json"
FIGURE = ROOT / "docs" / "images" / "scaling.png"
AGENTS, LANDMARKS = (2, 4, 8, 16), (5, 10, 20, 40)
WORLDS = [*((agents, 5) for agents in AGENTS), *((2, landmarks) for landmarks in LANDMARKS[1:]), (16, 40)]
"""One number grows at a time, then both."""
ENVS, HORIZON, BATCH = 32, 40, 8
BAR, MOST_GIB = 1.1, 4
Cost = Mapping[str, float]


@dataclass(frozen=True)
class Part:
    """What is measured against what."""

    text: str
    of: str
    """What grows."""
    order: str
    """As the code has it."""
    sizes: tuple[Any, ...]
    measure: Callable[[Any], Cost]
    bar: float | None = None
    """What the exponent may be at most."""


def cost(function: Callable[..., Any], *arguments: Any, repeats: int = 5) -> Cost:
    """Seconds, bytes and seconds to compile."""
    started = time.process_time()
    program = jax.jit(function).lower(*arguments).compile()
    compiling, best = time.process_time() - started, math.inf
    for _ in range(repeats):
        started = time.process_time()
        jax.block_until_ready(program(*arguments))
        best = min(best, time.process_time() - started)
    memory = program.memory_analysis()
    size = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    return {"seconds": best, "bytes": size, "compile_seconds": compiling}


def world_of(size: tuple[int, int]) -> Any:
    """MESA in a particle world of (agents, landmarks), with short episodes."""
    quick = named("mesa", f"wide-{size[0]}a{size[1]}l", "quick")
    return replace(quick, family=replace(quick.family, world=replace(quick.family.world, horizon=HORIZON)))


def rollout(size: tuple[int, int]) -> Cost:
    """Episodes by the learner's own policy."""
    mesa, key = world_of(size), jax.random.key(0)
    env, spec = mesa.family.env, mesa.family.env.spec
    tasks, learner = mesa.family.split(0, 8, 0).train, LEARNER.init(spec, key)
    return cost(
        lambda state, k: play(env, tasks, LEARNER.behavior(spec, state, Elapsed.at(0.0)), k, 4 * ENVS), learner, key
    )


def update_of(algorithm: Any) -> Callable[[tuple[int, int]], Cost]:
    """One update from a batch of episodes, nets of the same widths in every world."""

    def measure(size: tuple[int, int]) -> Cost:
        mesa, key = world_of(size), jax.random.key(0)
        env, spec = mesa.family.env, mesa.family.env.spec
        learner = algorithm.init(spec, key)
        shape = jax.eval_shape(
            lambda k: play(
                env, mesa.family.split(0, 1, 0).train, algorithm.behavior(spec, learner, Elapsed.at(0.0)), k, BATCH
            ),
            key,
        )
        batch = jax.tree.map(lambda leaf: jnp.ones(leaf.shape, leaf.dtype), shape)
        return cost(lambda s, b, k: algorithm.update(spec, s, b, Elapsed.end(), k), learner, batch, key)

    return measure


def stage_2(size: tuple[int, int], members: int = 256) -> Cost:
    """A round of playing and learning for explorers; M_* of random numbers, as far apart as any."""
    mesa, key = world_of(size), jax.random.key(0)
    reward = replace(mesa.method.reward, capacity=members)
    method = replace(mesa.method, reward=reward, explore=replace(mesa.method.explore, num_envs=ENVS))
    env, spec = mesa.family.env, mesa.family.env.spec
    features = np.random.default_rng(0).uniform(size=(members, reward.feature_size(spec)))
    state = reward.subspace(spec, features, np.ones(members), 0)
    loop = method.explore_loop(env)
    begun, tasks = loop.init(Start(), state, key), mesa.family.split(0, 8, 0).train
    return cost(lambda s, k: loop.advance(tasks, None, s, k, 1), begun, key, repeats=3)


def climb_update(actions: int) -> Cost:
    """One update of the climb games' coordinated learner, two agents."""
    algorithm = named("mesa", "climb-wide", "quick").algorithm
    family, key = ClimbFamily(num_actions=actions), jax.random.key(0)
    spec = family.env.spec
    learner = algorithm.init(spec, key)
    batch = play(family.env, family.split(0, 2, 0).train, algorithm.behavior(spec, learner, Elapsed.at(0.0)), key, 32)
    return cost(lambda s, b, k: algorithm.update(spec, s, b, Elapsed.end(), k), learner, batch, key, repeats=20)


def lanes(number: int) -> Cost:
    """Ten rounds of so many learners in one program."""
    plain = named("plain", "climb-one", "quick")
    loop = LearningLoop(plain.family.env, plain.algorithm, replace(plain.schedule, replay_capacity=1_000))
    tasks = plain.family.split(0, 8, 0).train
    tasks = jax.tree.map(lambda leaf: jnp.resize(leaf, (number, 1, *leaf.shape[1:])), tasks)
    keys = jax.random.split(jax.random.key(0), number)
    begun = jax.vmap(lambda k: loop.init(Start(), None, k))(keys)
    return cost(
        jax.vmap(lambda t, s, k: loop.advance(t, None, s, k, 10)),
        tasks,
        begun,
        keys,
        repeats=3,
    )


TASKS_RUN = ("run", "mesa", "climb-multi-mixed", "--preset", "smoke", "--num-test-tasks", "2")
TEAM_RUN = ("--preset", "smoke", "--num-test-tasks", "1", "--num-train-tasks", "10", "--family.world.radius", "1.3")


COMPILE_LITTLE = "--xla_backend_optimization_level=0"
CACHE = Path(tempfile.gettempdir()) / f"mesax-scaling-{os.getuid()}"


def run(*arguments: str) -> Cost:
    """A whole run of a few learning steps, all compiled before."""
    environment = dict(os.environ) | {"MESAX_CACHE_DIR": str(CACHE), "XLA_FLAGS": COMPILE_LITTLE}
    return _process(arguments, environment)


@cache
def warmed() -> None:
    """Compile what such runs use."""
    run(*TASKS_RUN, "--workers", "1", "--num-train-tasks", "10")


def run_cold(*arguments: str) -> Cost:
    """A whole run that compiles everything, as users' first ones do."""
    with tempfile.TemporaryDirectory() as temporary:
        return _process(arguments, dict(os.environ) | {"MESAX_CACHE_DIR": temporary})


def _process(arguments: Iterable[str], environment: Mapping[str, str]) -> Cost:
    """`mesax` in a process between, whose children are only those of this command."""
    code = (
        "import json, resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL);"
    )
    code += "u = resource.getrusage(resource.RUSAGE_CHILDREN);"
    code += "print(json.dumps({'seconds': u.ru_utime + u.ru_stime, 'bytes': 1024 * u.ru_maxrss}))"
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "mesax.cli", *arguments, "--quiet", "--out", f"{out}/run"]
        between = [sys.executable, "-c", code, *command]
        done = subprocess.run(between, env=dict(environment), check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def run_tasks(number: int) -> Cost:
    """MESA on a climb game with so many training tasks."""
    warmed()
    return run(*TASKS_RUN, "--workers", "1", "--num-train-tasks", str(number))


def run_workers(number: int) -> Cost:
    """The same work on more processes: what they cost in all."""
    warmed()
    return run(*TASKS_RUN, "--workers", str(number), "--num-train-tasks", "40")


def run_agents(number: int) -> Cost:
    """All stages of MESA with so many particles, compilation included; one place that random teams find."""
    return run_cold("run", "mesa", f"wide-{number}a1l", *TEAM_RUN, "--workers", "1")


def run_nodes(number: int) -> Cost:
    """The same work on a Ray cluster of so many nodes with one CPU each: driver, workers, and Ray itself meanwhile."""
    warmed()
    arguments = ("--on", "ray", "--address", two_nodes.ADDRESS, "--num-train-tasks", "40", "--quiet")
    environment = {"MESAX_CACHE_DIR": str(CACHE), "XLA_FLAGS": COMPILE_LITTLE}
    with tempfile.TemporaryDirectory() as out, two_nodes.started(number) as cluster:
        before, clock = cluster.used(), time.monotonic()
        used = dict(before)  # looked up again and again: nobody counts the time of workers that Ray has ended
        command = [sys.executable, "-m", "mesax.cli", *TASKS_RUN, *arguments, "--out", f"{out}/run"]
        driver = cluster.popen(command, Path(out) / "log", environment)
        while driver.poll() is None:
            used |= cluster.used()
            time.sleep(0.2)
        if driver.returncode:
            raise SystemExit((Path(out) / "log").read_text(encoding="utf-8"))
        seconds = sum(own - before.get(name, (0.0, 0))[0] for name, (own, _) in used.items())
        most = max(size for _, size in used.values())
        return {"seconds": seconds, "bytes": most, "wall_seconds": time.monotonic() - clock}


def of_agents(measure: Callable[[tuple[int, int]], Cost]) -> Callable[[int], Cost]:
    """Among five landmarks."""
    return lambda agents: measure((agents, 5))


def of_landmarks(measure: Callable[[tuple[int, int]], Cost]) -> Callable[[int], Cost]:
    """For two agents."""
    return lambda landmarks: measure((2, landmarks))


PARTS = {
    "rollout": Part(
        "rollout of 128 episodes, learner's policy",
        "agents x landmarks",
        "n (U + n) H + n H²",
        tuple(WORLDS),
        rollout,
        BAR,
    ),
    "update": Part(
        "update, joint critic",
        "agents x landmarks",
        "n A H² + n² A² H + n (U + n) H",
        tuple(WORLDS),
        update_of(LEARNER),
        BAR,
    ),
    "update-additive": Part(
        "update, additive critic",
        "agents x landmarks",
        "n (U + n) H + n H²",
        tuple(WORLDS),
        update_of(ADDITIVE_LEARNER),
        BAR,
    ),
    "stage-2-agents": Part("stage 2, a round of 32 environments", "agents", "n² U", AGENTS, of_agents(stage_2)),
    "stage-2-landmarks": Part(
        "stage 2, a round of 32 environments", "landmarks", "n² U", (5, 20, 40), of_landmarks(stage_2)
    ),
    "stage-2-members": Part(
        "stage 2, a round of 32 environments",
        "members of M_*",
        "|M| n U",
        (64, 256, 4096),
        lambda size: stage_2((2, 5), size),
    ),
    "actions": Part("update, coordinated, two agents", "actions", "A H", (10, 50, 100, 200), climb_update),
    "lanes": Part("ten rounds of `climb-one`", "lanes", "L", (1, 4, 16), lanes),
    "tasks": Part("smoke run of `climb-multi-mixed`", "training tasks", "T", (10, 100, 300), run_tasks),
    "workers": Part("the same with 40 tasks", "workers", "work, and a start each", (1, 2, 4), run_workers),
    "nodes": Part("the same with 40 tasks, on Ray", "nodes", "work, and a start each", (1, 2, 4), run_nodes),
    "run-agents": Part(
        "smoke run of particles, compiling included", "agents", "n, after compiling", (2, 16), run_agents
    ),
}


def number_of(size: Any) -> int:
    """A size as one number: agents x landmarks for a world."""
    return math.prod(size) if isinstance(size, tuple | list) else int(size)


def exponent(points: Iterable[Mapping[str, Any]], what: str = "seconds") -> float:
    """Slope of the line through the logarithms."""
    found = [(math.log(number_of(point["size"])), math.log(point[what])) for point in points]
    return float(np.polyfit(*zip(*found, strict=True), 1)[0])


def slopes(points: list[dict[str, Any]]) -> dict[str, float]:
    """Exponents of some of the points."""
    if not isinstance(points[0]["size"], list):
        return {"at the end": exponent(sorted(points, key=lambda point: point["size"])[-2:])}
    among = {landmarks: [point for point in points if point["size"][1] == landmarks] for landmarks in (5, 40)}
    alone = [point for point in points if point["size"][0] == 2]
    return {
        "agents, 5 landmarks": exponent(among[5]),
        "agents, 40 landmarks": exponent(among[40]),
        "landmarks, 2 agents": exponent(alone),
    }


def measured(name: str, points: list[dict[str, Any]]) -> dict[str, Any]:
    """What the file says of a part."""
    part = PARTS[name]
    return {
        "what": part.text,
        "against": part.of,
        "order": part.order,
        "exponent": round(exponent(points), 3),
        "slopes": {name: round(value, 3) for name, value in slopes(points).items()},
        "memory_exponent": round(exponent(points, "bytes"), 3),
        "bar": part.bar,
        "points": points,
    }


def tell(found: Mapping[str, Any], stored: Path) -> None:
    """Every part in a row, as docs/scale.md has it, and whether the bars are met."""
    print(Evidence(stored.parent).write(f"scaling {stored.stem}"))
    for entry in found.values():
        if (bar := entry["bar"]) is not None:
            verdict = "met" if entry["exponent"] <= bar else "MISSED"
            print(f"{entry['what']}: exponent {entry['exponent']:.2f}, bar <= {bar} {verdict}")
    if "run-agents" in found:
        team = largest_team(found)
        verdict = "met" if team["peak_gib"] <= MOST_GIB else "MISSED"
        print(f"peak of a smoke run of {team['agents']} agents: {team['peak_gib']} GiB, bar <= {MOST_GIB} {verdict}")
    if missing := [name for name in PARTS if name not in found]:
        print(f"not measured yet: {', '.join(missing)}")


def largest_team(found: Mapping[str, Any]) -> dict[str, float]:
    """What a smoke run of the largest team took."""
    most = max(found["run-agents"]["points"], key=lambda point: point["size"])
    return {"agents": most["size"], "peak_gib": round(most["bytes"] / 2**30, 2), "seconds": most["seconds"]}


def curves(entry: Mapping[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    """What is drawn of a part: one number growing at a time."""
    points = entry["points"]
    if not isinstance(points[0]["size"], list):
        return [(entry["against"], sorted(points, key=lambda point: point["size"]))]
    return [
        ("agents", [point for point in points if point["size"][1] == 5]),
        ("landmarks", [point for point in points if point["size"][0] == 2]),
    ]


COLORS = (*(f"C{number}" for number in range(10)), "black", "0.5")


def draw(found: Mapping[str, Any], target: Path) -> None:
    """Time and memory of every part, as multiples of its smallest size."""
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(1, 2, figsize=(9.6, 3.8), sharey=True, layout="constrained")
    for axes, what in zip(grid, ("seconds", "bytes"), strict=True):
        for number, entry in enumerate(found.values()):
            for (against, points), style in zip(curves(entry), ("o-", "s:"), strict=False):
                base = points[0]
                sizes = [number_of(point["size"]) / number_of(base["size"]) for point in points]
                costs = [point[what] / base[what] for point in points]
                label = f"{entry['what'].replace('`', '')}: {against}" if what == "seconds" else None
                axes.plot(sizes, costs, style, color=COLORS[number], ms=3, lw=1.2, label=label)
        line = np.array([1.0, 32.0])
        axes.plot(line, line, color="0.6", lw=0.8, ls="--", zorder=0)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xlabel("size, in multiples of the smallest (dashed: linear)", fontsize=8)
        axes.set_title("processor time" if what == "seconds" else "memory", fontsize=9, loc="left")
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    grid[0].set_ylabel("cost, in multiples of the smallest", fontsize=8)
    figure.legend(loc="outside right center", fontsize=6.5, frameon=False)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=100)
    plt.close(figure)


def main() -> None:
    """Measure, save, fit, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=[*PARTS, "none"], metavar="PART")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--figure", type=Path, default=FIGURE)
    options = parser.parse_args()
    known = json.loads(options.results.read_text(encoding="utf-8"))["parts"] if options.results.exists() else {}
    known = {name: measured(name, entry["points"]) for name, entry in known.items()}
    for name in (name for name in options.parts if name != "none"):
        points: list[dict[str, Any]] = []
        if name == "nodes" and (reason := two_nodes.why_not()):
            print(f"nodes: cannot be measured here: {reason}")
            continue
        for size in PARTS[name].sizes:
            plain = list(size) if isinstance(size, tuple) else size
            points.append(
                {"size": plain} | {key: float(f"{value:.4g}") for key, value in PARTS[name].measure(size).items()}
            )
            print(f"{name} {plain}: {points[-1]}", flush=True)
        known[name] = measured(name, points)
        write(options.results, known)
    found = {name: known[name] for name in PARTS if name in known}
    write(options.results, found)
    tell(found, options.results)
    draw(found, options.figure)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory of this process {peak:.2f} GiB")


def write(target: Path, found: Mapping[str, Any]) -> None:
    """The file."""
    document: dict[str, Any] = {"command": "python benchmarks/scaling.py", "jax": jax.__version__, "parts": dict(found)}
    if "run-agents" in found:
        document["team"] = largest_team(found)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
