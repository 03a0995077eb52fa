"""Explorers in worlds that they were not trained in: with more agents, or turned; nothing is trained anew.

    whole      drives all agents: right where all must meet (k = n)
    subteams   in every episode some of the agents, drawn anew, are driven as the team that the explorer knows, and see
               only each other; every other agent does one of
                   hold     goes to the place nearest to it and stays
                   tour     visits places as if its team stood where it stands
                   uniform  moves at random
    turned     an episode is played in a world turned by one of its symmetries, and actions are turned back

Turning undoes habits: an explorer that always leaves out what lies in one corner leaves out another in every episode.

    borrow    copy the explorers of a finished run, and see what they reach on unseen tasks
    adapt     as in MESA, with these
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from mesax.envs.base import Task
from mesax.envs.structure import HasSymmetries, HasTeamView, Symmetries, TeamView
from mesax.errors import StoreError, UsageError
from mesax.explorers.foreign_loop import Explorers, KindNeeded, explorers_of, load_explorers
from mesax.explorers.places import EXPLORERS, explorers_in, run_or_explorers
from mesax.explorers.recipe import LARGEST_FILE, ExplorerRecipe, restore_explorers
from mesax.mesa.mixing import Mixing
from mesax.methods.adapt import adapt_stage, check_adapt
from mesax.methods.base import Experiment, Services, Stage, borrow_stage
from mesax.methods.preset import Preset
from mesax.methods.visits import pictured, unseen_visits
from mesax.nets import Memory
from mesax.ours.records import Told, tell
from mesax.policy import ExplorationPolicySet, Policy, UniformPolicy
from mesax.ranges import at_least
from mesax.store.modules import loaded_modules, named_in
from mesax.store.reading import ALL_EXPLORERS
from mesax.store.settings import Named
from mesax.store.trees import Place, open_tree
from mesax.training.loop import Start
from mesax.types import Action, EnvSpec, Key, Label, TeamSized, Transition, random_index, tree_index

ZERO_SHOT_TASKS, ZERO_SHOT_EPISODES = 25, 1_000
"""Unseen tasks, and episodes on all of them together, on which borrowed explorers are looked at."""
TURN_STREAM, TEAM_STREAM = 11, 12
"""Apart from the streams that policies draw from at the start of an episode."""
How: TypeAlias = Literal["whole", "subteams"]
Rest: TypeAlias = Literal["hold", "tour", "uniform"]
Value = TypeVar("Value")


class Turned(eqx.Module):
    """A policy that plays every episode in a world turned by a symmetry of its own."""

    policy: Policy
    obs_maps: Float[Array, "symmetries obs obs"]
    action_maps: Int[Array, "symmetries actions"]

    @staticmethod
    def by(symmetries: Symmetries, policy: Policy) -> Turned:
        """A policy turned by what a world declares."""
        return Turned(policy, jnp.asarray(symmetries.obs, jnp.float32), jnp.asarray(symmetries.actions, jnp.int32))

    def start(self, key: Key) -> Memory:
        """Draw how the world is turned."""
        which = random_index(jax.random.fold_in(key, TURN_STREAM), (), self.obs_maps.shape[0])
        return which, self.policy.start(key)

    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """Act on what would be seen in the turned world, and turn the action back."""
        which, inner = memory
        action, inner = self.policy.act(inner, obs @ self.obs_maps[which].T, key)
        return self.action_maps[which][action], (which, inner)

    def label(self, memory: Memory) -> Label:
        """As the wrapped policy says."""
        return self.policy.label(memory[1])


class Holding(eqx.Module):
    """A told policy of one agent: it goes to the place nearest to it at the start, and stays.

    It is told to want that place only, and sees partners there: an explorer that waits for its partners need not.
    """

    told: Told
    view: TeamView = eqx.field(static=True)

    def start(self, key: Key) -> Memory:
        """No place chosen yet."""
        return self.told.policy.start(key), jnp.full((), -1, jnp.int32)

    def act(self, memory: Memory, obs: Float[Array, "1 obs"], key: Key) -> tuple[Action, Memory]:
        """Want the same as ever; the action of the agent itself comes first."""
        told, (inner, place) = self.told, memory
        size, places = told.spec.num_agents, self.view.places(obs[0])
        nearest = jnp.argmin(jnp.sum(jnp.square(places), axis=1)).astype(jnp.int32)
        place = jnp.where(place >= 0, place, nearest)
        team = self.view.with_partners(obs[0], size, places[place])
        there = jnp.broadcast_to(team[1], team.shape)
        subspace = told.state.subspace
        alike = jnp.where(subspace.cluster_valid, subspace.centroids @ self._features(there), -1.0)
        wanted = subspace.centroids[jnp.argmax(alike)]
        action, inner = told.policy.act(inner, tell(team, wanted, self._features(team)), key)
        return action, (inner, place)

    def _features(self, obs: Float[Array, "team obs"]) -> Float[Array, " features"]:
        spec = self.told.spec
        still = Transition(obs, spec.action_space.zeros((spec.num_agents,)), obs)
        return self.told.reward.sense(spec, self.told.state, still)

    def label(self, memory: Memory) -> Label:
        """As the policy itself says."""
        return self.told.policy.label(memory[0])


class Touring(eqx.Module):
    """A policy of one agent: it visits places as if its whole team stood where it stands."""

    policy: Policy
    view: TeamView = eqx.field(static=True)
    size: int = eqx.field(static=True)

    def start(self, key: Key) -> Memory:
        """As the policy does."""
        return self.policy.start(key)

    def act(self, memory: Memory, obs: Float[Array, "1 obs"], key: Key) -> tuple[Action, Memory]:
        """The action of the agent itself comes first."""
        here = jnp.zeros(self.view.dimensions)
        return self.policy.act(memory, self.view.with_partners(obs[0], self.size, here), key)

    def label(self, memory: Memory) -> Label:
        """As the policy says."""
        return self.policy.label(memory)


class SubTeams(eqx.Module):
    """Some agents, drawn anew in every episode, play as a team; the others each play for themselves."""

    team: Policy
    rest: Policy
    """Plays for one agent; its first action counts."""
    view: TeamView = eqx.field(static=True)
    num_agents: int = eqx.field(static=True)
    size: int = eqx.field(static=True)
    """Agents of the team."""

    def start(self, key: Key) -> Memory:
        """Draw who is of the team."""
        key_order, key_rest = jax.random.split(jax.random.fold_in(key, TEAM_STREAM))
        order = jnp.argsort(jax.random.uniform(key_order, (self.num_agents,)))
        alone = jax.vmap(self.rest.start)(jax.random.split(key_rest, self.num_agents - self.size))
        return order, self.team.start(key), alone

    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """The team sees itself only."""
        order, team, alone = memory
        members, others = order[: self.size], order[self.size :]
        chosen, team = self.team.act(team, self.view.of_team(obs, members), key)

        def one(memory: Memory, seen: Float[Array, " obs"], key: Key) -> tuple[Action, Memory]:
            actions, memory = self.rest.act(memory, seen[None], key)
            return actions[:1], memory

        keys = jax.random.split(jax.random.fold_in(key, TEAM_STREAM), self.num_agents - self.size)
        rest, alone = jax.vmap(one)(alone, obs[others], keys)
        action = jnp.zeros((self.num_agents, *chosen.shape[1:]), chosen.dtype)
        return action.at[order].set(jnp.concatenate([chosen, rest[:, 0]])), (order, team, alone)

    def label(self, memory: Memory) -> Label:
        """As the team says."""
        return self.team.label(memory[1])


@dataclass(frozen=True)
class Borrowed:
    """Meta-testing with the explorers of another run: nothing is meta-trained anew."""

    explorers_from: str | None = None
    """A finished run with explorers."""
    num_explorers: int = 1
    """How many of them to use: the first."""
    transfer: How = "subteams"
    """How they are used if they know fewer agents: they drive the whole team, or sub-teams of their own size."""
    rest: Rest = "tour"
    """What agents outside of the sub-team do: tour places, hold the nearest one, or move uniformly at random."""
    turn: bool = False
    """Whether explorers play every episode in a world turned by one of its symmetries."""
    mixing: Mixing = Mixing()
    """p_e on the test tasks."""

    def __post_init__(self) -> None:
        """Refuse no explorers."""
        at_least(self, 1, "num_explorers")

    @property
    def source(self) -> Path:
        """Where the explorers are."""
        if self.explorers_from is None:
            raise UsageError("whose explorers? say it with --method.explorers-from RUN_DIR, a finished run of mesa")
        return explorers_in(Path(self.explorers_from))

    def check(self, experiment: Experiment) -> None:
        """Explorers that do not fit are refused."""
        check_adapt(experiment, self.mixing)
        self.borrowed(experiment, self.source)

    def stages(self, experiment: Experiment) -> tuple[Stage, ...]:
        """Borrow, adapt."""

        def start(services: Services, tasks: Task) -> Start:
            del tasks
            return Start(explorer=self.borrowed(experiment, services.outputs("borrow")[0] / EXPLORERS))

        borrow = borrow_stage(self.source, lambda services: self._look(experiment, services))
        return borrow, adapt_stage(experiment, self.mixing, start)

    def borrowed(self, experiment: Experiment, directory: Place, first: int = 0, at_most: int | None = None) -> Policy:
        """The explorers as they play here."""
        env, number = experiment.family.env, self.num_explorers if at_most is None else at_most
        # Those of the experiment's own modules, which every process that works on it has loaded.
        kinds = tuple(kind for module in loaded_modules(experiment) for kind in named_in(module).values())
        transfer = Transfer(env, env.spec, self.transfer, self.rest, self.turn, first, number, kinds)
        return transfer.deployed(directory)

    def _look(self, experiment: Experiment, services: Services) -> None:
        """See what they reach on unseen tasks before anything is learned there."""
        family = experiment.family
        if family.high_reward is None:  # without M_* it is unknown what counts as high
            return
        visitors = {ALL_EXPLORERS: self.borrowed(experiment, services.directory / EXPLORERS)}
        room = family.num_tasks
        tasks = ZERO_SHOT_TASKS if room is None else min(ZERO_SHOT_TASKS, room - experiment.num_train_tasks)
        unseen = replace(experiment, num_test_tasks=max(tasks, experiment.num_test_tasks))
        visits = unseen_visits(unseen, visitors, family.high_reward, ZERO_SHOT_EPISODES)
        services.document("coverage", pictured(family, [entry for entry, _ in visits]))


@dataclass(frozen=True)
class Transfer:
    """How explorers that know another number of agents are put to use in a world."""

    env: object
    """The world; it may say how observations are made of agents, and how it can be turned."""
    spec: EnvSpec
    how: How = "subteams"
    rest: Rest = "tour"
    turn: bool = False
    first: int = 0
    """The first explorer to use."""
    at_most: int | None = None
    """How many to use; None: all."""
    kinds: tuple[Named, ...] = ()
    """Classes and functions of the user's that the explorers may be made of."""

    def deployed(self, directory: Place) -> Policy:
        """Saved explorers as they play here, one drawn in every episode; refuses those that cannot."""
        try:
            if isinstance(directory, Path):
                source = load_explorers(directory, self.kinds)
            else:
                saved = open_tree(directory)
                source = explorers_of(saved, saved.directory, self.kinds)
        except KindNeeded as error:
            raise UsageError(
                f"the explorers of {directory} use '{error.name}', and this experiment uses nothing of that module:"
                " let its family, its learner or its features be of there"
            ) from error
        return self.turned(self._driving(source, directory))

    def turned(self, policy: Policy) -> Policy:
        """Turned, if that was asked for."""
        if not self.turn:
            return policy
        if not isinstance(self.env, HasSymmetries):
            raise UsageError(f"{type(self.env).__name__} declares no symmetries: it cannot be turned (method.turn)")
        return Turned.by(self.env.symmetries, policy)

    def _driving(self, source: Explorers, directory: Place) -> Policy:
        recipe = source.recipe
        if not isinstance(recipe, ExplorerRecipe):
            raise UsageError("explorers that share a latent know one world only: they cannot be transferred")
        self._check_sizes(recipe.spec)
        if self.how == "whole":
            recipe = whole_team(recipe, self.spec)
            return recipe.deployed(ExplorationPolicySet(self._restored(recipe, directory)))
        policies = self.chosen(source.policies)
        team = recipe.deployed(ExplorationPolicySet(policies))
        if recipe.spec.num_agents == self.spec.num_agents:
            return team
        rest = self._rest(recipe, policies, team)
        return SubTeams(team, rest, self._view, self.spec.num_agents, recipe.spec.num_agents)

    def _restored(self, recipe: ExplorerRecipe, directory: Place) -> Policy:
        saved = open_tree(run_or_explorers(directory) if isinstance(directory, Path) else directory, LARGEST_FILE)
        try:
            return self.chosen(restore_explorers(recipe, saved).policies)
        except StoreError as error:
            raise UsageError(
                "these explorers cannot drive a whole team of another size: what they are told has a number for each of"
                f" their agents (explorers of 2 agents can): {error}"
            ) from error

    def chosen(self, policies: Policy) -> Policy:
        """Those of stacked explorers that are to be used."""
        end = None if self.at_most is None else self.first + self.at_most
        return tree_index(policies, slice(self.first, end))

    def _rest(self, recipe: ExplorerRecipe, policies: Policy, team: Policy) -> Policy:
        if self.rest == "uniform":
            return UniformPolicy(self.spec.action_space)
        if self.rest == "tour":
            return Touring(team, self._view, recipe.spec.num_agents)
        if not isinstance(policies, Told):
            raise UsageError(
                "agents can hold only where explorers are told what is left (tell-demand): choose method.rest tour or"
                " uniform"
            )
        return recipe.deployed(ExplorationPolicySet(Holding(policies, self._view)))

    @property
    def _view(self) -> TeamView:
        if not isinstance(self.env, HasTeamView):
            raise UsageError(
                f"{type(self.env).__name__} does not say how its observations are made of agents (team_view): explorers"
                " of another number of agents cannot play there"
            )
        return self.env.team_view

    def _check_sizes(self, known: EnvSpec) -> None:
        """One line about what does not fit."""
        if known.action_space != self.spec.action_space:
            raise UsageError(
                f"the explorers choose among {known.action_space}, this world has {self.spec.action_space}"
            )
        if known.num_agents > self.spec.num_agents:
            raise UsageError(
                f"the explorers need {known.num_agents} agents, and this world has {self.spec.num_agents}: they can be"
                " transferred to as many agents or more"
            )
        same = known.num_agents == self.spec.num_agents
        if known.obs_size != (wanted := self.spec.obs_size if same else self._view.size(known.num_agents)):
            raise UsageError(
                f"{known.num_agents} agents observe {wanted} numbers each in this world, and the explorers know"
                f" {known.obs_size}: they were trained in another kind of world"
            )


def whole_team(recipe: ExplorerRecipe, spec: EnvSpec) -> ExplorerRecipe:
    """The recipe for driving all agents of a world with weights that were trained among fewer."""
    if recipe.spec.num_agents == spec.num_agents:
        return replace(recipe, spec=spec)
    number = spec.num_agents
    return replace(
        recipe, spec=spec, algorithm=for_team(recipe.algorithm, number), reward=for_team(recipe.reward, number)
    )


def for_team(value: Value, num_agents: int) -> Value:
    """Settings with every part that depends on the number of agents replaced."""
    if isinstance(value, TeamSized):
        return cast(Value, value.for_team(num_agents))
    if is_dataclass(value) and not isinstance(value, type):
        parts = {one.name: for_team(getattr(value, one.name), num_agents) for one in fields(value) if one.init}
        changed = {name: part for name, part in parts.items() if part is not getattr(value, name)}
        return replace(value, **changed) if changed else value
    return value


def transfer(preset: Preset) -> Experiment:
    """The learner that MESA wraps, mixed with explorers of another run."""
    method = Borrowed(num_explorers=preset.method.num_explorers, mixing=preset.method.mixing)
    return replace(preset.mesa, method=method)
