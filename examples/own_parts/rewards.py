"""A reward model: joint actions that are rare are worth a try."""

from dataclasses import dataclass, replace

import jax.numpy as jnp

from mesax import Discrete, UsageError


@dataclass(frozen=True)
class Rare:
    """The task's reward + weight / sqrt(how often the joint action has been played)."""

    weight: float = 0.1

    def learner_spec(self, spec):
        """The learner sees what there is."""
        if not isinstance(spec.action_space, Discrete):
            raise UsageError("Rare counts joint actions: they must be discrete")
        return spec

    def begin(self, spec, given, key):
        """A count of every joint action: the state, which travels with the run and is saved and resumed."""
        return jnp.zeros(spec.action_space.num_actions**spec.num_agents)

    def equip(self, spec, state, policy):
        """Policies are told nothing more."""
        return policy

    def observe(self, spec, state, episodes, key):
        """Count what was played `[envs, time]`, then pay for it; steps after an end are masked."""
        places = spec.action_space.num_actions ** jnp.arange(spec.num_agents)
        joint = episodes.action @ places
        state = state.at[joint].add(episodes.mask)
        bonus = self.weight / jnp.sqrt(jnp.maximum(state[joint], 1.0))
        return state, replace(episodes, reward=episodes.reward + jnp.where(episodes.mask, bonus, 0.0))
