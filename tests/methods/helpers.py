"""A host that remembers, and a second off-policy algorithm, for the tests of methods and the driver."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from mesax.algorithms.base import OffPolicy
from mesax.algorithms.maddpg import Maddpg
from mesax.envs.climb import ClimbFamily
from mesax.methods.base import Experiment
from mesax.nets import Mlp
from mesax.policy import EpsilonRandom
from mesax.store.trees import save_tree
from mesax.training.schedule import Schedule
from mesax.types import Elapsed, EnvSpec, Episode, Key, Label, Linear, Metrics, masked_mean

# k = 2 always: the optimum of target u is (u, u) and nothing else.
ONE_STEP = ClimbFamily(2, 3, 1, counts=(2,))
TWO_STAGE = ClimbFamily(2, 3, 2, counts=(2,))
TINY = Schedule(800, warmup_steps=200, num_envs=10, batch_size=16, replay_capacity=200, num_evaluations=3)
TINY_MADDPG = Maddpg(actor_net=Mlp((4,)), critic_net=Mlp((4,)))


class LinearPolicy(eqx.Module):
    """Every agent plays its best action under values that are linear in its observation."""

    weight: Float[Array, "agents obs actions"]

    def start(self, key: Key) -> tuple[()]:
        del key
        return ()

    def act(self, memory: Any, obs: Array, key: Key) -> tuple[Array, Any]:
        del key
        return jnp.argmax(jnp.einsum("no,noa->na", obs, self.weight), axis=-1), memory

    def label(self, memory: Any) -> Label:
        del memory
        return Label.of(0)


class Preferences(eqx.Module):
    """Samples from the softmax of a table."""

    logits: jax.Array

    def start(self, key):
        del key
        return ()

    def act(self, memory, obs, key):
        del obs
        return jax.random.categorical(key, self.logits), memory

    def label(self, memory):
        del memory
        return Label.of(0)


@dataclass(frozen=True)
class IndependentQ(OffPolicy):
    """Independent Q-learning without networks: as unlike MADDPG as an off-policy algorithm can be."""

    rate: float = 0.3
    discount: float = 0.9
    exploration: Linear = Linear(1.0, 0.0, 0.8)
    bad_loss_from: float = math.inf
    """Update from which on the loss is not a number."""
    bad_weights_from: float = math.inf
    """Update from which on the weights are not numbers: a gradient may overflow where the loss does not."""

    def init(self, spec: EnvSpec, key: Key) -> dict[str, Array]:
        shape = (spec.num_agents, spec.obs_size, spec.action_space.feature_size)
        # Part of the state, so that healthy and sick learners share a compiled program.
        sick_from = jnp.array([self.bad_loss_from, self.bad_weights_from])
        return {
            "weight": 0.01 * jax.random.normal(key, shape),
            "health": 1.0 / sick_from,
            "born_from": jax.random.key_data(key),
            "updates": jnp.zeros((), jnp.int32),
        }

    def greedy(self, spec: EnvSpec, state: dict[str, Array]) -> LinearPolicy:
        del spec
        return LinearPolicy(state["weight"])

    def behavior(self, spec: EnvSpec, state: dict[str, Array], elapsed: Elapsed) -> EpsilonRandom:
        return EpsilonRandom(LinearPolicy(state["weight"]), self.exploration(elapsed), spec.action_space)

    def update(
        self, spec: EnvSpec, state: dict[str, Array], batch: Episode, elapsed: Elapsed, key: Key
    ) -> tuple[dict[str, Array], Metrics]:
        del elapsed, key
        played = spec.action_space.encode(batch.action)

        def loss_of(weight: Array) -> Array:
            q = jnp.einsum("btno,noa->btna", batch.obs, weight)
            following = jax.lax.stop_gradient(jnp.max(q[:, 1:], axis=-1))
            target = batch.reward[..., None] + self.discount * batch.continues[..., None] * following
            error = jnp.sum(q[:, :-1] * played, axis=-1) - target
            return masked_mean(jnp.sum(jnp.square(error), axis=-1), batch.mask)

        loss, gradient = jax.value_and_grad(loss_of)(state["weight"])
        bad_loss, bad_weights = jnp.where(state["updates"] * state["health"] >= 1.0, jnp.nan, 0.0)
        weight = state["weight"] - self.rate * gradient + bad_weights
        return {**state, "weight": weight, "updates": state["updates"] + 1}, {"loss": loss + bad_loss}


SICK = IndependentQ(bad_loss_from=30.0)
"""Its loss is not a number in the second chunk of learning under the schedule `TINY`."""


@dataclass
class MemoryServices:
    """Keeps what jobs say; those of all stages share the lists."""

    root: Path
    stage: str = ""
    job: int = 0
    eval: list[dict[str, Any]] = field(default_factory=list)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    documents: dict[str, Any] = field(default_factory=dict)
    reports: list[tuple[str, int, int, str]] = field(default_factory=list)

    @property
    def directory(self) -> Path:
        path = self.root / self.stage / f"{self.job:03d}"
        path.mkdir(parents=True, exist_ok=True)
        return path

    @property
    def scratch(self) -> Path:
        return self.directory / "scratch"

    def put_aside(self, name: str, tree: Any, facts: dict[str, Any]) -> None:
        save_tree(self.scratch / name, tree, facts)

    def kept(self, like: Any) -> None:
        del like

    def keep(self, state: Any) -> None:
        del state

    def left(self) -> None:
        return None

    def pause(self, loop: Any) -> None:
        del loop

    def outputs(self, stage: str) -> list[Path]:
        return sorted((self.root / stage).iterdir())

    def rows(self, name: str, rows: Iterable[dict[str, Any]]) -> None:
        getattr(self, name).extend(rows)

    def document(self, name: str, content: dict[str, Any]) -> None:
        self.documents[name] = content

    def report(self, done_steps: int, note: str = "") -> None:
        self.reports.append((self.stage, self.job, done_steps, note))

    def compiled(self, seconds: float) -> None:
        assert seconds > 0

    def phase(self, name: str) -> list[dict[str, Any]]:
        """Metrics of one phase."""
        return [row for row in self.metrics if row["phase"] == name]


def run(experiment: Experiment, root: Path, *stages: str) -> MemoryServices:
    """Do all jobs of the given stages (of all stages, if none is given) one after another."""
    host = MemoryServices(root)
    for stage in experiment.method.stages(experiment):
        if not stages or stage.name in stages:
            for job in range(len(stage.job_steps)):
                stage.run(job, replace(host, stage=stage.name, job=job))
    return host


class Seen(Exception):
    """Somebody would have begun to learn, or to compile."""


def announced_and_given(experiment: Experiment, host: MemoryServices, monkeypatch: Any) -> tuple[Any, Any]:
    """Shapes of what learning the test tasks begins with: as announced for who compiles it before, and as it comes."""
    seen = []

    def spy(loop: Any, tasks: Any, keys: Any, **rest: Any) -> None:
        seen.append(jax.eval_shape(lambda *all_of_it: all_of_it, tasks, keys, rest["start"]))
        raise Seen

    for name in ("learn", "prepare"):
        monkeypatch.setattr(f"mesax.methods.adapt.{name}", spy)
    adapt = experiment.method.stages(experiment)[-1]
    assert adapt.prepare is not None
    with pytest.raises(Seen):
        adapt.prepare()
    with pytest.raises(Seen):
        adapt.run(0, replace(host, stage="again"))
    announced, given = seen
    return announced, given


def same_bits(left: Any, right: Any) -> bool:
    """Whether two pytrees have the same structure, dtypes and bits."""
    ours, theirs = jax.tree.leaves(left), jax.tree.leaves(right)
    return jax.tree.structure(left) == jax.tree.structure(right) and all(
        np.asarray(a).dtype == np.asarray(b).dtype and np.array_equal(a, b, equal_nan=True)
        for a, b in zip(ours, theirs, strict=True)
    )
