"""A small, deterministic fake run directory in the format the runner writes."""

import json
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from mesax.rendering.recorded import VERSION
from mesax.rendering.scene import Scene, Shape, Take
from mesax.results.summary import summarize
from mesax.store.files import file_checksum
from mesax.store.json_values import Json, signed
from mesax.store.reading import Curve
from mesax.store.run_directory import RunDirectory

DELTA = 0.5


@dataclass(frozen=True)
class FakeRun:
    """What to pretend: the method decides which groups of tasks are solved, and whether explorers exist."""

    method: str = "mesa"
    env: str = "climb-one"
    preset: str = "quick"
    seed: int = 0
    num_tasks: int = 4
    repeats: int = 1
    num_stages: int = 1
    num_agents: int = 2
    num_actions: int = 10
    num_explorers: int = 4
    interval: int = 1_000
    evaluations: int = 50
    label_prefix: str = ""
    overrides: tuple[tuple[str, str], ...] = ()
    config_hash: str = "5f3a9c0d1e2b4a68"

    @property
    def has_explorers(self) -> bool:
        """Whether the method trains explorers, and so writes their metrics and coverage."""
        return self.method == "mesa"


SMALL = FakeRun(num_tasks=4, evaluations=12, num_actions=4, num_explorers=2)


def write_run(path: Path, fake: FakeRun | None = None) -> Path:
    """Write the run directory and return its path."""
    fake = fake or FakeRun()
    path.mkdir(parents=True)
    rng = np.random.default_rng([fake.seed, len(fake.method), fake.num_stages])
    tasks = _tasks(fake)
    test_tasks, train_tasks = tasks[: fake.num_tasks], tasks[fake.num_tasks :]
    run = _run_json(path, fake, test_tasks, train_tasks)
    rows = _eval_rows(fake, test_tasks, rng)
    _write_json(path / "run.json", run)
    _write_rows(path / "eval.jsonl", rows)
    _write_rows(path / "metrics.jsonl", _metric_rows(fake, train_tasks, rng))
    _write_rows(
        path / "timing.jsonl",
        [{"phase": "adapt", "job": 0, "seconds": 12.5, "cpu_seconds": 11.5, "compile_seconds": 4.0, "env_steps": 100}],
    )
    if fake.has_explorers:
        _write_json(path / "coverage.json", _coverage(fake, train_tasks, rng))
    _write_json(path / "summary.json", _summary(fake, run, rows, path))
    _write_rows(path / "clock.jsonl", [{"started": 0.0, "seconds": 83.0}])
    (path / "STATUS").write_text("done\n")
    return seal(path)


def seal(path: Path) -> Path:
    """Say that the files of a run directory are as they should be."""
    run = RunDirectory(path)
    run.unseal()
    run.seal({file.name: file_checksum(file) for file in sorted(path.iterdir()) if file.suffix in (".json", ".jsonl")})
    return path


def write_landmark_run(path: Path, num_landmarks: int = 5, num_explorers: int = 2) -> Path:
    """A run about particles: tasks are layouts, and visits are counted for each landmark."""
    write_run(path, FakeRun(num_tasks=4, evaluations=12, num_explorers=num_explorers, num_actions=4))
    rng = np.random.default_rng(num_landmarks)
    run, coverage = (json.loads((path / f"{name}.json").read_text()) for name in ("run", "coverage"))
    for name in ("num_actions", "num_stages"):
        del run["family"][name]
    run["env"] = run["family"]["name"] = "wide-2a5l"
    run["family"] |= {
        "num_agents": 2,
        "num_landmarks": num_landmarks,
        "count": 2,
        "return_is": "sum",
        "groups": ["k=2"],
    }
    for number, task in enumerate(run["test_tasks"] + run["train_tasks"]):
        layout = rng.uniform(-1, 1, (num_landmarks, 2)).round(4).tolist()
        task |= {
            "label": f"u={number % num_landmarks}",
            "group": "k=2",
            "target": [[number % num_landmarks, 2], *layout],
        }
    for visitor in coverage["visitors"]:
        visitor["frequency"] = rng.uniform(0, 12, (1, num_landmarks)).round(6).tolist()
    coverage |= {"num_stages": 1, "shape": [num_landmarks], "dataset": np.ones((1, num_landmarks)).tolist()}
    _write_json(path / "run.json", run)
    _write_json(path / "coverage.json", coverage)
    return seal(path)


def _tasks(fake: FakeRun) -> list[Json]:
    """Test tasks, then ten training tasks; they depend on the seed only, so every method gets the same."""
    rng = np.random.default_rng(fake.seed)
    pairs = list(product(range(1, fake.num_agents + 1), range(fake.num_actions)))
    tasks = []
    for index in range(fake.num_tasks + 10):
        if fake.num_stages == 1:
            k = index % 2 + 1
            target = [(k, int((index // 2 + fake.seed) % fake.num_actions))]
            label, group = f"k={k} u={target[0][1]}", f"k={k}"
        else:
            target = [pairs[i] for i in rng.integers(len(pairs), size=fake.num_stages)]
            label, group = " ".join(f"{k}/{u}" for k, u in target), None
        tasks.append(
            {
                "label": fake.label_prefix + label,
                "group": group,
                "target": [list(map(int, one)) for one in target],
            }
        )
    return tasks


def _run_json(path: Path, fake: FakeRun, test_tasks: list[Json], train_tasks: list[Json]) -> Json:
    config = {
        "method": {
            "num_explorers": fake.num_explorers,
            "decay_power": 5,
            "mixing": {"start": 0.8, "end": 0.0},
        },
        "algorithm": {"learning_rate": 0.005, "hidden": [64, 64], "actor_update": "coordinated"},
        "env": {"num_agents": fake.num_agents, "num_actions": fake.num_actions, "delta": DELTA},
    }
    return {
        "id": path.name,
        "method": fake.method,
        "env": fake.env,
        "preset": fake.preset,
        "seed": fake.seed,
        "overrides": dict(fake.overrides),
        "config": config,
        "config_hash": fake.config_hash,
        "paper_diff": [
            ["algorithm.actor_update", "gumbel", "coordinated"],
            ["algorithm.hidden", [128, 128], [64, 64]],
        ],
        "command": f"mesax run {fake.method} {fake.env} --preset {fake.preset} --seed {fake.seed}",
        "versions": {"python": "3.11.9", "mesax": "0.1.0", "jax": "0.7.0", "numpy": "2.1.0"},
        "git_commit": "0123456789abcdef0123456789abcdef01234567",
        "machine": {"system": "Linux", "cpus": 2},
        "family": {
            "name": fake.env,
            "optimal_return": 1.0,
            "suboptimal_return": 1 - DELTA,
            "optimal_threshold": 0.99,
            "return_is": "mean",
            "lowest_return": 0.0,
            "groups": [f"k={k}" for k in range(1, fake.num_agents + 1)],
            "num_agents": fake.num_agents,
            "num_actions": fake.num_actions,
            "num_stages": fake.num_stages,
        },
        "test_tasks": test_tasks,
        "train_tasks": train_tasks,
    }


def _eval_rows(fake: FakeRun, tasks: list[Json], rng: np.random.Generator) -> list[Json]:
    """Stages with k=1 are always solved; k=2 by mesa early, by uniform late or never, by others never."""
    rows = []
    for (index, task), repeat in product(enumerate(tasks), range(fake.repeats)):
        stages = [f"k={k}" for k, _ in task["target"]]
        solved_at = [_solved_at(fake.method, stage, rng) * fake.interval * fake.evaluations for stage in stages]
        wanders = rng.random((fake.evaluations, len(stages)))
        for number in range(fake.evaluations):
            step = (number + 1) * fake.interval
            rewards = [
                1.0 if step >= at else (0.0 if wander < 0.25 * (1 - step / at) else 1 - DELTA)
                for at, wander in zip(solved_at, wanders[number], strict=True)
            ]
            groups = {name: _mean_of(rewards, stages, name) for name in sorted(set(stages))}
            row = {
                "phase": "adapt",
                "task": index,
                "repeat": repeat,
                "step": step,
                "return": float(np.mean(rewards)),
            }
            rows.append({**row, "groups": groups})
    return rows


def _mean_of(rewards: list[float], stages: list[str], name: str) -> float:
    return float(np.mean([reward for reward, stage in zip(rewards, stages, strict=True) if stage == name]))


def _solved_at(method: str, group: str, rng: np.random.Generator) -> float:
    """The fraction of the budget after which a stage is solved; above one is never."""
    draw = float(rng.random())
    if group == "k=1":
        return 0.08 + 0.15 * draw
    return {"mesa": 0.15 + 0.35 * draw, "uniform": 0.4 + 0.75 * draw}.get(method, 2.0)


def _metric_rows(fake: FakeRun, train_tasks: list[Json], rng: np.random.Generator) -> list[Json]:
    if not fake.has_explorers:
        return []
    rows: list[Json] = []
    for index, task in enumerate(train_tasks):
        pairs = 18 if task["target"][0][0] == 1 else 1
        row = {
            "phase": "collect",
            "task": index,
            "step": 30_000,
            "high_reward_pairs": int(rng.integers(80, 900)),
        }
        rows.append({**row, "distinct_pairs": pairs})
    for policy, number in product(range(fake.num_explorers), range(1, 21)):
        level = 1 - np.exp(-number / 5)
        noise = rng.normal(0, 0.04)
        row = {"phase": "explore", "policy": policy, "step": number * 1_000}
        row |= {"intrinsic_return": float(level * 0.95**policy + noise)}
        rows.append(
            {
                **row,
                "distinct_visits": float(3 * fake.num_stages * level + 3 * noise),
                "clusters_visited": 2.0,
            }
        )
    return rows


def _dataset(fake: FakeRun, train_tasks: list[Json]) -> np.ndarray:
    """Which joint actions some training task pays fully, for each stage."""
    joint = np.indices((fake.num_actions,) * fake.num_agents)
    dataset = np.zeros((fake.num_stages,) + (fake.num_actions,) * fake.num_agents, dtype=int)
    for task in train_tasks:
        for stage, (k, u) in enumerate(task["target"]):
            dataset[stage] |= (joint == u).sum(axis=0) == k
    return dataset


def _coverage(fake: FakeRun, train_tasks: list[Json], rng: np.random.Generator) -> Json:
    """Explorers as products of peaked independent policies, which is what trained ones look like."""
    shape = (fake.num_stages,) + (fake.num_actions,) * fake.num_agents
    uniform = np.full(shape, 1 / fake.num_actions**fake.num_agents)
    explorers = []
    for _ in range(fake.num_explorers):
        peaks = rng.dirichlet(np.full(fake.num_actions, 0.15), size=(fake.num_stages, fake.num_agents))
        frequency = np.stack([_outer(stage) for stage in peaks])
        explorers.append(np.where(frequency < 5e-4, 0.0, frequency))
    dataset = _dataset(fake, train_tasks)
    named = [("uniform", uniform)]
    named += [(f"explorer {index + 1}", frequency) for index, frequency in enumerate(explorers)]
    named += [("all explorers", np.mean(explorers, axis=0))]
    visitors = [
        {
            "name": name,
            "episodes": 1_000,
            "frequency": frequency.tolist(),
            "distinct_visits": float(1 + index / 2),
            "high_reward_steps": float((frequency * dataset).sum()),
        }
        for index, (name, frequency) in enumerate(named)
    ]
    common = {"num_stages": fake.num_stages, "shape": list(shape[1:]), "visitors": visitors}
    return {**common, "dataset": dataset.tolist(), "dataset_size": int(dataset.sum()), "clusters": 16}


def _outer(policies: np.ndarray) -> np.ndarray:
    product_policy = np.ones(())
    for policy in policies:
        product_policy = np.multiply.outer(product_policy, policy)
    return product_policy


def _summary(fake: FakeRun, run: Json, rows: list[Json], path: Path) -> Json:
    steps = fake.num_tasks * fake.repeats * fake.interval * fake.evaluations
    meta_steps = 300_000 if fake.has_explorers else 0
    return summarize(run, rows, env_steps=steps, meta_env_steps=meta_steps, wall_seconds=83.0, run_dir=str(path))


def curve(task: int, steps: list[int], returns: list[float], **groups: list[float]) -> Curve:
    """The evaluations of one task; `k_1=` is the group "k=1"."""
    arrays = {name.replace("_", "="): np.array(values) for name, values in groups.items()}
    return Curve(task, f"task {task}", 0, 0, np.array(steps), np.array(returns), arrays)


def run_json(num_tasks: int = 2) -> Json:
    """What run.json must hold, for tests by hand."""
    family = {"optimal_return": 2.0, "suboptimal_return": 1.0, "optimal_threshold": 1.9}
    tasks = [{"label": f"task {index}", "group": None} for index in range(num_tasks)]
    identity = {"method": "mesa", "env": "climb-one", "preset": "quick", "seed": 3}
    return {**identity, "family": family, "test_tasks": tasks}


def eval_row(task: int, step: int, value: float, **more: object) -> Json:
    """One evaluation of a test task."""
    return {"phase": "adapt", "task": task, "repeat": 0, "step": step, "return": value, **more}


def _write_json(path: Path, value: Json) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


def _write_rows(path: Path, rows: list[Json]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_episodes(path: Path, policies: tuple[str, ...] = ("final", "explorer-1", "uniform"), tasks: int = 2) -> Path:
    """Two recorded episodes of each policy on each task: agents that walk between two landmarks, and are paid there."""
    rng = np.random.default_rng(len(policies))
    landmarks = ((-0.5, 0.0), (0.5, 0.5))
    shapes = [Shape("box", (0.0, 0.0), (2.0, 2.0), "wall")]
    shapes += [
        Shape("disc", place, (0.4, 0.4), "target" if number else "place", str(number), place=number)
        for number, place in enumerate(landmarks)
    ]
    takes = []
    for _ in range(2):
        steps = np.arange(21)
        ways = np.clip(np.cumsum(rng.normal(0, 0.1, (21, 2, 2)), axis=0), -1, 1)
        takes.append(Take(steps, np.where(steps > 10, 1.0, 0.0), ways, [(3, 0), (5, -1), (11, 1)]))
    scene = Scene("Reward 1 at landmark 1.", (-1.05, 1.05, -1.05, 1.05), tuple(takes), tuple(shapes))
    plays = [
        {"policy": name, "task": task, "stage": 0, "takes": scene.episodes()}
        for name in policies
        for task in range(tasks)
    ]
    whose = {"version": VERSION, "config_hash": RunDirectory(path).run["config_hash"]}
    _write_json(path / "episodes.json", signed(whose | {"stages": [scene.stage()], "plays": plays}))
    return path
