"""Nets made of nets: one per agent, several on the same input, and a critic that is linear in the actions."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mesax.nets.sequence import BuildsCritics, Input, Memory, Net, NetConfig, StepByStep, along
from mesax.types import Key, mapped


class Team(StepByStep[Array]):
    """One net per agent: separate parameters, or shared ones that are told the agent's identity."""

    nets: Net[Input]
    """A net with stacked leaves `[agents, ...]`, or a single net if shared."""
    num_agents: int = eqx.field(static=True)
    shared: bool = eqx.field(static=True)

    @staticmethod
    def create(
        config: NetConfig, num_agents: int, sizes: tuple[int, int], key: Key, *, shared: bool, head_gain: float
    ) -> Team:
        """Nets from `sizes = (inputs, outputs)` for every agent."""
        inputs, outputs = sizes
        if shared:
            # Identical agents with identical observations could not break ties: hence the identity.
            return Team(config.build(inputs + num_agents, outputs, key, head_gain), num_agents, shared)
        build = jax.vmap(lambda k: config.build(inputs, outputs, k, head_gain))
        return Team(build(jax.random.split(key, num_agents)), num_agents, shared)

    def start(self) -> Memory:
        """Memories of all agents."""
        if self.shared:
            return jax.tree.map(lambda leaf: jnp.stack([leaf] * self.num_agents), self.nets.start())
        return jax.vmap(lambda net: net.start())(self.nets)

    def step(self, memory: Memory, x: Float[Array, "agents inputs"]) -> tuple[Memory, Float[Array, "agents outputs"]]:
        """Every agent's net on its own input."""
        axis = None if self.shared else 0
        return jax.vmap(lambda net, m, row: net.step(m, row), in_axes=(axis, 0, 0))(
            self.nets, memory, self._identified(x)
        )

    def along(
        self, start: Memory, xs: Float[Array, "time agents inputs"]
    ) -> tuple[Memory, Float[Array, "time agents outputs"]]:
        """Every agent's net along its own inputs."""
        axis = None if self.shared else 0
        return jax.vmap(along, in_axes=(axis, 1, 0), out_axes=1)(self.nets, self._identified(xs), start)

    def along_batch(
        self, start: Memory, xs: Float[Array, "batch time agents inputs"]
    ) -> tuple[Memory, Float[Array, "batch time agents outputs"]]:
        """Along many episodes; to a shared net every agent's is one more."""
        if not self.shared:
            of_agent = jax.vmap(lambda net, start, xs: net.along_batch(start, xs), in_axes=(0, 1, 2), out_axes=2)
            return of_agent(self.nets, start, xs)
        batch, time, agents, _ = xs.shape
        episodes = jnp.swapaxes(self._identified(xs), 1, 2).reshape(batch * agents, time, -1)
        both = self.nets.along_batch(jax.tree.map(lambda m: m.reshape(batch * agents, *m.shape[2:]), start), episodes)
        return jax.tree.map(lambda part: jnp.swapaxes(part.reshape(batch, agents, *part.shape[1:]), 1, 2), both)

    def _identified(self, x: Float[Array, "*batch agents inputs"]) -> Float[Array, "*batch agents more"]:
        if not self.shared:
            return x
        identity = jnp.broadcast_to(jnp.eye(self.num_agents), (*x.shape[:-1], self.num_agents))
        return jnp.concatenate([x, identity], axis=-1)


class CodedTeam(StepByStep[Array]):
    """A team whose last layer follows a code that all its agents share: y_i = W(code, i) h_i, h_i what i's net says.

    W is linear in the code and in which agent it is. An input begins with the code, the same all along an episode.
    """

    team: Team
    """From inputs without the code to features h."""
    weight: Float[Array, "parts features outputs"]
    """W is the sum of its parts: one for each number of the code, times it; one for each agent; one for all."""

    @staticmethod
    def create(
        config: NetConfig,
        num_agents: int,
        sizes: tuple[int, int, int, int],
        key: Key,
        *,
        shared: bool,
        head_gain: float,
    ) -> CodedTeam:
        """Nets from `sizes = (code, inputs, features, outputs)`; `head_gain` is that of the features."""
        code, inputs, features, outputs = sizes
        key_team, key_weight = jax.random.split(key)
        team = Team.create(config, num_agents, (inputs, features), key_team, shared=shared, head_gain=head_gain)
        limit = (code + num_agents) ** -0.5
        shape = (code + num_agents + 1, features, outputs)
        return CodedTeam(team, jax.random.uniform(key_weight, shape, minval=-limit, maxval=limit))

    @property
    def num_agents(self) -> int:
        """As many as the team has."""
        return self.team.num_agents

    def start(self) -> Memory:
        """Memories of all agents."""
        return self.team.start()

    def step(self, memory: Memory, x: Float[Array, "agents inputs"]) -> tuple[Memory, Float[Array, "agents outputs"]]:
        """Every agent's net on its own input, read by the weights that the code asks for."""
        code, rest = self._parts(x)
        memory, features = self.team.step(memory, rest)
        return memory, jnp.einsum("af,afo->ao", features, self.weights(code[0]))

    def along_batch(
        self, start: Memory, xs: Float[Array, "batch time agents inputs"]
    ) -> tuple[Memory, Float[Array, "batch time agents outputs"]]:
        """Along many episodes, each with weights of its own."""
        code, rest = self._parts(xs)
        after, features = self.team.along_batch(start, rest)
        return after, jnp.einsum("btaf,bafo->btao", features, jax.vmap(self.weights)(code[:, 0, 0]))

    def weights(self, code: Float[Array, " code"]) -> Float[Array, "agents features outputs"]:
        """W for every agent."""
        numbers = jnp.broadcast_to(jnp.append(code, 1.0), (self.num_agents, code.size + 1))
        parts = jnp.concatenate([numbers[:, :-1], jnp.eye(self.num_agents), numbers[:, -1:]], axis=1)
        return jnp.einsum("ap,pfo->afo", parts, self.weight)

    def _parts(
        self, x: Float[Array, "*batch inputs"]
    ) -> tuple[Float[Array, "*batch code"], Float[Array, "*batch rest"]]:
        size = self.weight.shape[0] - self.num_agents - 1
        return x[..., :size], x[..., size:]


class Additive(StepByStep[Input]):
    """Q(s, a) = V(s) + sum_i A_i(s, a_i): a net of the state alone, linear in the action features.

    All actions of all agents are rated by one pass, and the expectation over independent policies is exact: it is the
    value at their probabilities.
    """

    net: Net[Input]

    def start(self) -> Memory:
        """Memory of the net."""
        return self.net.start()

    def step(self, memory: Memory, x: Input) -> tuple[Memory, Float[Array, " 1"]]:
        """Value of one state with one joint action."""
        obs, action = x
        memory, out = self.net.step(memory, obs)
        return memory, self._sum(out, action)

    def along(self, start: Memory, xs: Input) -> tuple[Memory, Float[Array, "time 1"]]:
        """The net's own way along the states."""
        obs, action = xs
        after, out = along(self.net, obs, start)
        return after, self._sum(out, action)

    def along_batch(self, start: Memory, xs: Input) -> tuple[Memory, Float[Array, "batch time 1"]]:
        """The same for many episodes."""
        obs, action = xs
        after, out = self.net.along_batch(start, obs)
        return after, self._sum(out, action)

    def advantages(self, memory: Memory, obs: Float[Array, " obs"]) -> Float[Array, " action"]:
        """What each entry of the action features adds."""
        return self.net.step(memory, obs)[1][1:]

    @staticmethod
    def _sum(out: Float[Array, "*steps outputs"], action: Float[Array, "*steps action"]) -> Float[Array, "*steps 1"]:
        return out[..., :1] + jnp.sum(out[..., 1:] * action, axis=-1, keepdims=True)


class Ensemble(StepByStep[Input]):
    """Several nets with one output each, on the same input."""

    nets: Net[Input]
    """A net with stacked leaves `[members, ...]`."""

    @staticmethod
    def create(
        config: NetConfig,
        members: int,
        sizes: tuple[int, int],
        key: Key,
        *,
        additive: bool = False,
        head_gain: float = 1.0,
    ) -> Ensemble:
        """Independent scalar-valued nets of `sizes = (joint observation, joint action)`."""
        obs, action = sizes

        def build(key: Key) -> Net[Input]:
            if additive:
                return Additive(config.build(obs, 1 + action, key, head_gain))
            if isinstance(config, BuildsCritics):
                return config.build_critic(obs, action, key, head_gain)
            return config.build(obs + action, 1, key, head_gain)

        return Ensemble(jax.vmap(build)(jax.random.split(key, members)))

    def start(self) -> Memory:
        """Memories of all members."""
        return jax.vmap(lambda net: net.start())(self.nets)

    def step(self, memory: Memory, x: Input) -> tuple[Memory, Float[Array, " members"]]:
        """Every member's value."""
        memory, values = mapped(lambda net, m: net.step(m, x))(self.nets, memory)
        return memory, values[:, 0]

    def along(self, start: Memory, xs: Input) -> tuple[Memory, Float[Array, "time members"]]:
        """Every member along the same inputs; memories are `[time, members, ...]`."""
        after, values = mapped(lambda net, start: along(net, xs, start), out_axes=1)(self.nets, start)
        return after, values[..., 0]

    def along_batch(self, start: Memory, xs: Input) -> tuple[Memory, Float[Array, "batch time members"]]:
        """The same for many episodes; memories are `[batch, time, members, ...]`."""
        of_member = mapped(lambda net, start: net.along_batch(start, xs), in_axes=(0, 1), out_axes=2)
        after, values = of_member(self.nets, start)
        return after, values[..., 0]
