"""MESA on an environment from elsewhere: two agents of mpe2's simple_spread must meet at a secret landmark.

    python examples/your_environment.py
    cd examples && mesax run mesa your_environment:make --preset smoke     # with settings that fit any environment

The reward is 1 in a step after which both agents are near one of the two landmarks, and 0 in all others. Which landmark
it is, and where both lie, is the task. Random play meets there in about one episode of fifty. MESA looks for such
meetings on training tasks and teaches explorers to go to them; the script ends with how often they meet on tasks that
they have never seen, and fails below five times as often as random play.

For your own environment, change three things:

* `make`: from a task's seed to a PettingZoo `ParallelEnv`; `mesax env check your_environment:make` says if it fits,
  and `mesax run mesa your_environment:make` needs no more than that.
* the features: what two rewarding steps of *different* tasks have in common, as a frozen dataclass from a joint step
  to a vector (here one that mesax has). Steps count as alike if their vectors are nearer than `distance_threshold`.
* the budgets: stage 1 must see a few dozen rewards in all, or there is nothing to go for.
"""

import argparse
import sys

import numpy as np
from hits import compare
from mpe2 import simple_spread_v3
from pettingzoo.utils import BaseParallelWrapper

import mesax

NEAR = 0.35
LENGTH = 25
UNSEEN = range(2**31, 2**31 + 30)
"""Seeds from 2**31 on: training tasks have smaller ones."""
LANDMARKS_FROM = 4
"""An agent sees its velocity, its position, the offsets to both landmarks and to the other agent, and messages."""


class SecretMeeting(BaseParallelWrapper):
    """Landmarks stay where the task has them, and one of them pays if both agents are near."""

    def __init__(self, env, seed):
        super().__init__(env)
        random = np.random.default_rng(seed)
        self.places, self.secret = random.uniform(-1.0, 1.0, (2, 2)), random.integers(2)

    def reset(self, seed=None, options=None):
        _, infos = self.env.reset(seed=seed, options=options)
        for landmark, place in zip(self.unwrapped.world.landmarks, self.places, strict=True):
            landmark.state.p_pos = place.copy()
        return {agent: self.unwrapped.observe(agent) for agent in self.agents}, infos

    def step(self, actions):
        observations, _, terminated, truncated, infos = self.env.step(actions)
        start = LANDMARKS_FROM + 2 * self.secret
        met = all(np.linalg.norm(seen[start : start + 2]) < NEAR for seen in observations.values())
        return observations, dict.fromkeys(observations, float(met)), terminated, truncated, infos


def make(seed):
    """One task."""
    return SecretMeeting(simple_spread_v3.parallel_env(N=2, max_cycles=LENGTH, continuous_actions=False), seed)


ENVIRONMENT = mesax.ForeignEnvironment(make, LENGTH, team_reward="shared")


def experiment(seed, explore_steps):
    """Stage 1 on 12 training tasks, stage 2, and one test task."""
    net = mesax.Mlp((64, 64))
    explorer = mesax.Mappo(
        net, net, optimizer=mesax.Adam(2e-3, clip_norm=0.5), epochs=4, minibatches=4, discount=0.95, gae=0.9
    )
    method = mesax.Mesa(
        explorer,
        collect=mesax.Schedule(4_000, num_envs=20, num_evaluations=1, warmup_steps=3_500, updates_per_round=1),
        explore=mesax.Budget(explore_steps, num_envs=64, num_evaluations=4),
        reward=mesax.RecordReward(
            mesax.SortedOccupancy(num_points=2, obs_from=LANDMARKS_FROM, radius=NEAR, softness=0.1),
            distance_threshold=0.1,
            width=0.5,
            num_clusters=2,
            tell_demand=True,
        ),
        relabel_discount=0.0,
        num_explorers=1,
        coverage_episodes=10,
    )
    family = mesax.ForeignFamily(ENVIRONMENT, optimal_return=LENGTH - 10.0)
    # Learning the test task itself takes far more steps than a short script has; this is just enough to run.
    learner = mesax.Maddpg(mesax.Mlp((32,)), mesax.Mlp((32,)))
    learning = mesax.Schedule(2_000, num_envs=20, num_evaluations=1, warmup_steps=1_000)
    return mesax.Experiment(method, family, learner, learning, seed, num_train_tasks=12, num_test_tasks=1, lanes=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="runs/your-environment", help="run directory; continued if it is there")
    parser.add_argument("--explore-steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    wanted = experiment(options.seed, options.explore_steps)
    mesax.run_experiment(wanted, options.out, env="secret-meeting", workers=options.workers)
    factor = compare(ENVIRONMENT, mesax.load_explorers(options.out), UNSEEN)
    return 0 if factor >= 5 else f"the factor is {factor:.1f}, and at least 5 was expected"


if __name__ == "__main__":
    sys.exit(main())
