"""Writes the page to play with: a world of the paper, an explorer and learned teams, in one file that asks for nothing.

    mesax run learned mpe-2a5l --seed 101 --out RUN
    python tools/play_page.py RUN              writes docs/play.html from the explorers and policies of the run
    python tools/play_page.py                  writes it anew from its own weights: after a change of tools/play/
    python tools/play_page.py --check          1 if that would change it

Weights are rounded to whole numbers times a scale; `explorer_of` and `teams_of` give them back to Python as the page
has them, and tests/docs/test_play_page.py holds both to the same numbers.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import jax
import numpy as np

import mesax
from mesax.explorers.recipe import ExplorerRecipe
from mesax.ours.learned import LearnedMesa
from mesax.policy import Policy
from mesax.types import tree_index

ROOT = Path(__file__).resolve().parents[1]
PARTS, PAGE = ROOT / "tools" / "play", ROOT / "docs" / "play.html"
MODEL = tuple(f".state.model.{part}" for part in ("first", "second", "pool", "full"))
USED = (".policy.actors.team", ".state.reference", *MODEL)
"""What an explorer acts by; the rest of it trained it."""
EXPLORER_BITS, TEAM_BITS = 16, 8
WORLD = ("num_agents", "radius", "delta", "horizon", "acceleration", "agent_size", "start_range", "difficulty")
REWARD = ("kernel", "distance_threshold", "width", "stay", "wish_decay")
Json: TypeAlias = dict[str, Any]


def packed(values: np.ndarray, bits: int) -> Json:
    """Numbers as whole ones of so many bits, times a scale."""
    scale = np.float32(max(float(np.abs(values).max()), 1e-9) / (2 ** (bits - 1) - 1))
    whole = np.round(values / scale).astype(np.int8 if bits == 8 else "<i2")
    data = base64.b64encode(whole.tobytes()).decode()
    return {"shape": list(values.shape), "scale": float(scale), "bits": bits, "data": data}


def unpacked(weight: Json) -> np.ndarray:
    """The numbers again, as the page computes them."""
    whole = np.frombuffer(base64.b64decode(weight["data"]), np.int8 if weight["bits"] == 8 else "<i2")
    return (whole * np.float32(weight["scale"])).astype(np.float32).reshape(weight["shape"])


def packed_tree(tree: object, bits: int, used: tuple[str, ...] = ("",)) -> Json:
    """The leaves of a tree whose paths begin with one of these, by their paths."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    named = ((jax.tree_util.keystr(path), np.asarray(leaf)) for path, leaf in leaves)
    return {name: packed(leaf, bits) for name, leaf in named if name.startswith(used)}


def filled(like: Any, weights: Json) -> Any:
    """A tree with leaves of the page in their places, every one of them; all others are as they were."""
    known = {jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(like)[0]}
    assert known >= weights.keys(), "the page has weights that no net of today has"

    def leaf(path: Any, value: Any) -> np.ndarray:
        name = jax.tree_util.keystr(path)
        return unpacked(weights[name]) if name in weights else np.asarray(value)

    return jax.tree_util.tree_map_with_path(leaf, like)


def experiment_of(data: Json) -> mesax.Experiment:
    """What the page's run was of, in today's settings."""
    return mesax.experiment(*data["about"]["of"])


def recipe_of(data: Json) -> ExplorerRecipe:
    """How explorers of the page are built: by today's settings, which must pay for what the page says."""
    experiment = experiment_of(data)
    assert isinstance(experiment.method, LearnedMesa)
    recipe = experiment.method.recipe(experiment.family.env.spec)
    assert isinstance(recipe, ExplorerRecipe)
    assert all(getattr(recipe.reward, name) == value for name, value in data["reward"].items())
    return recipe


def explorer_of(data: Json) -> Policy:
    """The page's explorer in Python."""
    recipe = recipe_of(data)
    empty = jax.tree.map(lambda leaf: np.zeros(leaf.shape[1:], leaf.dtype), recipe.shape(1))
    landmarks = len(data["layout"])
    policy: Policy = filled(empty, data["explorer"])
    every = np.ones(landmarks, bool), np.eye(landmarks, dtype=np.float32)
    return _with_clusters(policy, *every)


def _with_clusters(policy: Any, valid: np.ndarray, centroids: np.ndarray) -> Policy:
    subspace = replace(policy.state.subspace, cluster_valid=valid, centroids=centroids)
    changed: Policy = replace(policy, state=replace(policy.state, subspace=subspace))
    return changed


def teams_of(data: Json) -> list[Policy]:
    """The page's learned teams in Python."""
    experiment = experiment_of(data)
    spec = experiment.family.env.spec

    def fresh() -> Policy:
        return experiment.algorithm.greedy(spec, experiment.algorithm.init(spec, jax.random.key(0)))

    like = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), jax.eval_shape(fresh))
    return [filled(like, weights) for weights in data["learned"]]


def data_of(run: Path) -> Json:
    """All that the page knows, from a finished run."""
    facts = json.loads((run / "run.json").read_text(encoding="utf-8"))
    experiment, explorers = mesax.experiment(facts["method"], facts["env"], facts["preset"]), mesax.load_explorers(run)
    recipe, policy = explorers.recipe, jax.device_get(tree_index(explorers.policies, 0))
    assert isinstance(recipe, ExplorerRecipe), "explorers were paid for records of a learned nearness"
    tasks = experiment.family.split(facts["seed"], 1, experiment.num_test_tasks).test
    layout = np.asarray(tasks.landmarks[0])
    teams = [mesax.load_policy(run, int(task)).policy for task in np.argsort(np.asarray(tasks.target))]
    uniform = json.loads((run / "coverage.json").read_text(encoding="utf-8"))["visitors"][0]
    world = experiment.family.env
    return {
        "about": {
            "command": f"mesax run {facts['method']} {facts['env']} --seed {facts['seed']}",
            "of": [facts["method"], facts["env"], facts["preset"]],
            "random": round(uniform["distinct_visits"], 2),
        },
        "world": {name: getattr(world, name) for name in WORLD}
        | {"count": experiment.family.count, "time_step": world.physics.time_step, "damping": world.physics.damping},
        "reward": {name: getattr(recipe.reward, name) for name in REWARD},
        "factor": experiment.algorithm.actor_net.factor,
        "layout": np.round(layout - layout.mean(axis=0), 4).tolist(),
        "explorer": packed_tree(policy, EXPLORER_BITS, USED),
        "learned": [packed_tree(team, TEAM_BITS) for team in teams],
    }


def page_with(data: Json) -> str:
    """The page in one file."""
    text = (PARTS / "play.html").read_text(encoding="utf-8")
    data_line = f"const DATA = {json.dumps(data, separators=(',', ':'))};"
    parts = {"DATA": data_line} | {
        name: (PARTS / file).read_text(encoding="utf-8").strip()
        for name, file in {"STYLE": "play.css", "WORLD": "world.js", "PAGE": "play.js"}.items()
    }
    for name, part in parts.items():
        text = text.replace(f"/* {name} */", part, 1)
    return text


def data_in(page: Path = PAGE) -> Json:
    """What a page knows."""
    found = re.search(r"^const DATA = (\{.*\});$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert found, f"{page} is no page to play with"
    data: Json = json.loads(found[1])
    return data


def main() -> int:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?", help="run directory of learned mpe-2a5l")
    parser.add_argument("--out", type=Path, default=PAGE)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if the page is stale")
    options = parser.parse_args()
    text = page_with(data_of(options.run) if options.run else data_in())
    if options.check:
        stale = text != options.out.read_text(encoding="utf-8")
        print(f"{options.out} is {'stale: python tools/play_page.py' if stale else 'up to date'}")
        return int(stale)
    options.out.write_text(text, encoding="utf-8")
    print(f"written  {options.out}, {len(text.encode()) / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
