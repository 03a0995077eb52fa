"""Explorers for somebody else's training loop: NumPy in, NumPy out, no trainer.

explorers = mesax.load_explorers("runs/mine")
mixer = mesax.EpisodeMixer(explorers, total_steps=100_000)
player = mixer.choose(step)             # at the start of an episode: an explorer, or None: your learner plays
action = player.act(obs)                # [agents, obs] in, [agents] or [agents, size] out
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from mesax.compiling import compiled
from mesax.errors import StoreError, UsageError
from mesax.explorers.places import run_or_explorers
from mesax.explorers.recipe import LARGEST_FILE, Recipe, restore_explorers
from mesax.nets import Memory
from mesax.policy import EXPLORER, LEARNER, Policy
from mesax.ranges import at_least, between
from mesax.runtime import configure
from mesax.store.settings import Named, UnknownName, from_plain, name_of, settings_in
from mesax.store.trees import SavedTree, open_tree
from mesax.types import Action, Actions, Elapsed, EnvSpec, Key, Keys, Line, Linear, leading_size, tree_index

KINDS = settings_in(
    *("mesax.algorithms", "mesax.explorers.recipe", "mesax.nets", "mesax.policy", "mesax.rewards", "mesax.types"),
    *(f"mesax.baselines.{learner}" for learner in ("emc", "guided", "maesn.learner", "maven")),
    *(f"mesax.ours.{part}" for part in ("entities", "learned_records", "records", "shared_latent")),
    "mesax.mesa.coverage",
)
"""What a saved explorer may consist of: settings that mesax defines; a file cannot make anything else be built."""


class KindNeeded(UsageError):
    """Explorers are made of a class or a function that is not part of mesax, and that was not given."""

    def __init__(self, what: str, name: str) -> None:
        super().__init__(what)
        self.name = name


def load_explorers(path: Path | str, kinds: Sequence[Callable[..., object]] = ()) -> Explorers:
    """The explorers of a finished run, of a bundle that `mesax export` wrote, or of a directory that holds them.

    `kinds` are classes and functions of your own that the run used: a feature map, say, or a learner.
    """
    configure()
    path = Path(path)
    directory = run_or_explorers(path)
    if not directory.is_dir():
        raise UsageError(f"{path} is no directory with explorers")
    if directory.is_symlink():
        raise StoreError(f"{directory} is a link; name the directory itself")
    if not (directory / "manifest.json").is_file():
        raise UsageError(f"{path} holds no explorers: it is no finished run of mesa")
    return explorers_of(open_tree(directory, LARGEST_FILE), path, kinds)


def explorers_of(saved: SavedTree, path: PurePath, kinds: Sequence[Callable[..., object]] = ()) -> Explorers:
    """The explorers in a tree that is open; errors speak of `path`."""
    plain = saved.facts.get("recipe")
    if plain is None:
        raise StoreError(f"{path} was saved by an older version, which did not write down how it was built")
    recipe = _recipe(path, plain, kinds)
    if not isinstance(recipe, Recipe):
        raise StoreError(f"{path} describes no explorers")
    return Explorers(recipe, restore_explorers(recipe, saved).policies, saved.facts.get("about") or {})


def _recipe(path: PurePath, plain: object, kinds: Sequence[Named]) -> object:
    """What a file describes, with classes of mesax and of `kinds`; one that is missing is named with what to type."""
    try:
        return from_plain(plain, KINDS | {name_of(kind): kind for kind in kinds})
    except UnknownName as error:
        module, colon, name = error.name.partition(":")
        if not colon:
            raise
        raise KindNeeded(
            f"the explorers of {path} use '{error.name}', which is not part of mesax: import {name} from {module}"
            f" and call load_explorers(path, kinds=[{', '.join([*(kind.__name__ for kind in kinds), name])}])",
            error.name,
        ) from error
    except StoreError as error:
        raise StoreError(f"{path} holds explorers of another version of mesax, or damaged ones: {error}") from error


@dataclass(frozen=True, eq=False)
class Explorers:
    """A few exploration policies, trained to visit together what may pay."""

    recipe: Recipe
    """How the policies are made again."""
    policies: Policy
    """Stacked over explorers."""
    about: dict[str, object] = field(default_factory=dict)
    """Where they come from, if they were exported: environment, training tasks, what they visit."""

    @property
    def spec(self) -> EnvSpec:
        """Agents, observation size, action space and horizon that they were trained for."""
        return self.recipe.spec

    def __len__(self) -> int:
        return leading_size(self.policies)

    def start(self, seed: int, which: int | None = None, copies: int | None = None) -> Player:
        """Begin an episode of explorer number `which` (from 1; drawn if None); with `copies`, as many side by side."""
        if which is None:
            which = int(np.random.default_rng(seed).integers(len(self))) + EXPLORER
        if not 1 <= which <= len(self):
            raise UsageError(f"there is no explorer {which}; there are 1 to {len(self)}")
        # Chosen on the host: of every shape of a weight, JAX would compile a program for it.
        policy = self.recipe.deployed(tree_index(jax.device_get(self.policies), which - EXPLORER))
        return Player.begin(self.spec, which, policy, seed, copies)


@dataclass(frozen=True, eq=False)
class LearnedPolicy:
    """What a run has learned on one test task, to be played anywhere: NumPy in, NumPy out."""

    spec: EnvSpec
    """Agents, observations, actions and horizon that it was learned with."""
    policy: Policy

    def start(self, seed: int = 0, copies: int | None = None) -> Player:
        """Begin an episode; with `copies`, as many side by side. Then `act(obs)` at every step."""
        return Player.begin(self.spec, LEARNER, self.policy, seed, copies)


@dataclass
class Player:
    """A policy in the middle of an episode."""

    spec: EnvSpec
    """Sizes of the environment."""
    number: int
    """Which explorer plays, from 1; 0: what a learner has learned."""
    _policy: Policy
    _keys: Keys
    _memory: Memory
    _single: bool
    _step: int = 0

    @staticmethod
    def begin(spec: EnvSpec, number: int, policy: Policy, seed: int, copies: int | None = None) -> Player:
        """At the start of an episode; with `copies`, of as many side by side."""
        key = jax.random.key(seed)
        keys = key[None] if copies is None else jax.random.split(key, copies)
        return Player(spec, number, policy, keys, compiled(_start)(policy, keys), copies is None)

    def act(self, obs: np.ndarray | Sequence[object]) -> np.ndarray:
        """Joint action for a joint observation `[agents, obs]`, or for `[copies, agents, obs]`."""
        expected = (len(self._keys), self.spec.num_agents, self.spec.obs_size)
        try:
            seen = np.asarray(obs, np.float32)
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"observations are no array of numbers ({error}): flatten each agent's (gymnasium.spaces.flatten) and"
                f" fill it up with zeros to {self.spec.obs_size} numbers, as mesax does"
            ) from error
        seen = seen[None] if self._single else seen
        if seen.shape != expected:
            found, shown = (seen.shape[1:], expected[1:]) if self._single else (seen.shape, expected)
            raise UsageError(f"observations have shape {found}, and this policy expects {shown}")
        self._step += 1
        action, self._memory = compiled(_act)(self._policy, self._memory, seen, self._keys, np.int32(self._step))
        chosen = np.asarray(action)
        return chosen[0] if self._single else chosen


def _start(policy: Policy, keys: Keys) -> Memory:
    return jax.vmap(lambda key: policy.start(jax.random.fold_in(key, 0)))(keys)


def _act(
    policy: Policy, memory: Memory, obs: Float[Array, "copies agents obs"], keys: Keys, step: Int[Array, ""]
) -> tuple[Actions, Memory]:
    def one(memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        return policy.act(memory, obs, jax.random.fold_in(key, step))

    return jax.vmap(one)(memory, obs, keys)


@dataclass
class EpisodeMixer:
    """Algorithm 2 for any off-policy learner: says, at the start of each episode, who plays it."""

    explorers: Explorers
    """Explorers that play some of the episodes."""
    total_steps: int
    """Environment steps that the learner will take, explorers' episodes included."""
    probability: Line = Linear(0.8, 0.0, 0.6)
    """Chance that an explorer plays, over the run."""
    seed: int = 0
    """Seed of who plays and of all their chance."""
    episodes: int = field(default=0, init=False)
    """Episodes begun so far."""
    explored: int = field(default=0, init=False)
    """How many of them were given to explorers."""

    def __post_init__(self) -> None:
        """Refuse what is no budget or no probability."""
        at_least(self, 1, "total_steps")
        between(self, 0, 1, "probability.start", "probability.end")

    def choose(self, step: int) -> Player | None:
        """An explorer ready to play the episode that begins at environment step `step`; None: the learner plays."""
        random = np.random.default_rng((self.seed, self.episodes))
        self.episodes += 1
        chance = float(self.probability(Elapsed.at(step / self.total_steps, step)))
        if random.random() >= chance:
            return None
        self.explored += 1
        return self.explorers.start(int(random.integers(2**32)))
