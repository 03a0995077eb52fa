"""Explorers as a bundle that travels: weights, how they are put to use, and a card that says what they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from mesax.errors import UsageError
from mesax.explorers.places import EXPLORERS, explorers_in
from mesax.formatting import format_measured
from mesax.store.json_values import Json
from mesax.store.reading import read_coverage
from mesax.store.run_directory import PRODUCTS, RunDirectory
from mesax.store.trees import ARRAYS, MANIFEST, open_tree, read_manifest, save_again

CARD = "README.md"


def export_run(run: RunDirectory, out: Path | None) -> Path:
    """Write the explorers of a run as a bundle."""
    source = explorers_in(run.path)
    if not source.is_dir():
        raise UsageError(f"{run.path} has no explorers to export; its state is '{run.state}'")
    directory = out or run.path / "bundle"
    if out is not None and out.exists():
        raise UsageError(f"{out} exists already; choose another directory with --out")
    run.check(f"{PRODUCTS}/{EXPLORERS}/{MANIFEST}")
    saved = open_tree(source)
    saved.check_finite()
    about = _about(run)
    sha256 = read_manifest(source)["files"][ARRAYS]["sha256"]
    save_again(directory, saved, saved.facts | {"about": about}, {CARD: _card(saved.facts, about, sha256)})
    return directory


def _about(run: RunDirectory) -> Json:
    """Where the explorers come from."""
    known = {name: run.run.get(name) for name in ("id", "env", "preset", "seed", "versions", "git_commit")}
    tasks = [task.get("label") for task in run.run.get("train_tasks", [])]
    figures = ("name", "episodes", "distinct_visits", "high_reward_steps")
    visitors = read_coverage(run).get("visitors", [])
    coverage = [{name: visitor.get(name) for name in figures} for visitor in visitors]
    return known | {"train_tasks": tasks, "coverage": coverage}


class _Making(NamedTuple):
    """What a card says of how explorers were made."""

    action_repeat: int
    normalization: str
    trained_by: str


def _making(recipe: Json) -> _Making:
    if recipe["type"] == "SharedLatentRecipe":
        shared = f"a latent that all agents know, drawn once per {recipe['explorer']['drawn']}"
        return _Making(1, "none: observations do not matter", f"fitting tables to a density over relations; {shared}")
    standardized = recipe["algorithm"]["type"] == "Normalized"
    given = "inside the policies: give raw observations" if standardized else "none: give observations as trained on"
    trained_by = f"{recipe['algorithm']['type']}, paid by {recipe['reward']['type']}"
    return _Making(recipe["action_repeat"], given, trained_by)


def _card(facts: Json, about: Json, sha256: str) -> str:
    recipe = facts["recipe"]
    spec, number = recipe["spec"], facts["num_explorers"]
    space = spec["action_space"]
    actions = (
        f"one of {space['num_actions']} actions (an integer)"
        if space["type"] == "Discrete"
        else f"{space['size']} numbers between -1 and 1"
    )
    made = _making(recipe)
    rows = [
        f"| {row['name']} | {format_measured(row['distinct_visits'])} | {format_measured(row['high_reward_steps'])} |"
        for row in about["coverage"]
    ]
    lines = [
        f"# Exploration policies for {about['env']}",
        "",
        f"{number} policies that were meta-trained with MESA to visit, between them, what paid in the training tasks.",
        "Let one of them play some episodes of a new task and learn from these with any off-policy learner.",
        "",
        "## Use",
        "",
        "```python",
        "import mesax",
        "",
        'explorers = mesax.load_explorers("THIS_DIRECTORY")',
        "player = explorers.start(seed=0)      # at the start of an episode",
        "action = player.act(obs)              # at every step",
        "```",
        "",
        "Loading needs no trainer, unpickles nothing and imports nothing that a file names.",
        "",
        "## What goes in and out",
        "",
        "| | |",
        "|---|---|",
        f"| agents | {spec['num_agents']} |",
        f"| observation | {spec['obs_size']} numbers per agent, float32, shape `[agents, obs]` |",
        f"| action | {actions}, per agent |",
        f"| episode | {spec['horizon']} steps at most; each action is held for {made.action_repeat} |",
        f"| normalization | {made.normalization} |",
        f"| trained by | {made.trained_by} |",
        "",
        "## Training",
        "",
        f"Run `{about['id']}`, preset {about['preset']}, seed {about['seed']};"
        f" mesax {(about['versions'] or {}).get('mesax')}, commit {about['git_commit']}.",
        "",
        f"Training tasks: {'; '.join(map(str, about['train_tasks'])) or 'not recorded'}.",
        "",
        "## Coverage",
        "",
        "On unseen tasks, per episode:",
        "",
        "| who plays | distinct rewarding configurations | steps with a high reward |",
        "|---|---|---|",
        *rows,
        "",
        "## Files",
        "",
        f"`{ARRAYS}`: SHA-256 `{sha256}`.",
        "`manifest.json` has the sums of all files and one of itself; `mesax.load_explorers` checks them.",
        "",
        "Settings in full:",
        "",
        "```json",
        json.dumps(recipe, indent=1),
        "```",
        "",
    ]
    return "\n".join(lines)
