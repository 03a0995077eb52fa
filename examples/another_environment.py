"""MESA on MuJoCo: the two joints of a Reacher are two agents, and only a small secret spot of the plane pays.

    python examples/another_environment.py

The environment is Gymnasium-Robotics' multi-agent Reacher, a PettingZoo `ParallelEnv`: one agent turns the shoulder,
the other the elbow. In place of its own reward it gets 1 in a step after which the fingertip is within a centimeter of
the spot. Spots lie 12 cm from the shoulder, in any direction; which one it is, is the task, and nobody sees it. Random
play hits it in about one episode of twenty. Explorers should learn what all tasks have in common: the elbow keeps the
distance while the shoulder turns. The script fails if they hit less than five times as often.

What differs from `your_environment.py`: continuous actions, observations of different sizes, and a feature map of one's
own, which `load_explorers` has to be told of.
"""

import argparse
import sys
from dataclasses import dataclass

import numpy as np
from gymnasium_robotics import mamujoco_v1
from hits import compare
from pettingzoo.utils import BaseParallelWrapper

import mesax

DISTANCE = 0.12
NEAR = 0.01
LENGTH = 50
UNSEEN = range(2**31, 2**31 + 20)
"""Seeds from 2**31 on: training tasks have smaller ones."""


def fingertip(seen):
    """Where it is, from what the elbow sees: its offset from the visible target, and the target."""
    return seen[3:5] + seen[8:10]


class SecretSpot(BaseParallelWrapper):
    """One spot pays, and nothing else."""

    def __init__(self, env, seed):
        super().__init__(env)
        angle = np.random.default_rng(seed).uniform(-np.pi, np.pi)
        self.spot = DISTANCE * np.array([np.cos(angle), np.sin(angle)])

    def step(self, actions):
        observations, _, terminated, truncated, infos = self.env.step(actions)
        hit = np.linalg.norm(fingertip(observations["agent_1"]) - self.spot) < NEAR
        return observations, dict.fromkeys(observations, float(hit)), terminated, truncated, infos


def make(seed):
    """One task."""
    return SecretSpot(mamujoco_v1.parallel_env("Reacher", "2x1", 1), seed)


ENVIRONMENT = mesax.ForeignEnvironment(make, LENGTH, team_reward="shared")


@dataclass(frozen=True)
class Fingertip:
    """Steps are alike if they bring the fingertip to the same place; in units of `scale` meters."""

    scale: float = 0.1

    def __call__(self, spec, transition):
        return fingertip(transition.next_obs[1]) / self.scale


def experiment(seed, explore_steps):
    """Stage 1 on 24 training tasks, stage 2, and one test task."""
    explorer = mesax.Normalized(
        mesax.Mappo(
            share_actors=False,
            optimizer=mesax.Adam(2e-3, clip_norm=0.5),
            epochs=4,
            minibatches=4,
            discount=0.95,
            gae=0.9,
            entropy_bonus=0.0,
            largest_std=mesax.Linear(0.5, 0.05, 0.7),
        )
    )
    method = mesax.Mesa(
        explorer,
        collect=mesax.Schedule(2_000, num_envs=20, num_evaluations=1, warmup_steps=1_000, updates_per_round=1),
        explore=mesax.Budget(explore_steps, num_envs=32, num_evaluations=4),
        relabel_discount=0.0,
        reward=mesax.RecordReward(Fingertip(), 0.05, num_clusters=12, width=0.2, stay=0.0, tell_demand=True),
        num_explorers=1,
        coverage_episodes=10,
    )
    family = mesax.ForeignFamily(ENVIRONMENT, optimal_return=LENGTH - 5.0)
    # Learning the test task itself takes far more steps than a short script has; this is just enough to run.
    learner = mesax.Maddpg(mesax.Mlp((32,)), mesax.Mlp((32,)))
    learning = mesax.Schedule(2_000, num_envs=20, num_evaluations=1, warmup_steps=1_000)
    return mesax.Experiment(method, family, learner, learning, seed, num_train_tasks=24, num_test_tasks=1, lanes=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="runs/another-environment", help="run directory; continued if it is there")
    parser.add_argument("--explore-steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    mesax.run_experiment(experiment(options.seed, options.explore_steps), options.out, env="secret-spot")
    factor = compare(ENVIRONMENT, mesax.load_explorers(options.out, kinds=[Fingertip]), UNSEEN)
    return 0 if factor >= 5 else f"the factor is {factor:.1f}, and at least 5 was expected"


if __name__ == "__main__":
    sys.exit(main())
