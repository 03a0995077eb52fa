"""MESA's explorers in a learner that knows nothing of mesax: tabular Q-learning over joint actions, in NumPy.

    python examples/your_learner.py

The game has three stages. At each, two agents choose one of ten actions; if both choose the stage's special action the
team is paid 1, if neither does 0.5, else 0. What is special differs from task to task. The learner comes to like 0.5 at
once and finds the special pair, one of a hundred, by chance. Explorers have seen on other tasks that what pays is to
choose alike. All that the learner needs of mesax are the four lines marked `# mesax`.

Every learner gets the same number of episodes. `alone` is epsilon-greedy; `random` lets uniformly random agents play as
many of the episodes as `explorers` gives to explorers. With many more episodes all three find everything, for a table
of 300 numbers is small.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

import mesax

ACTIONS, STAGES = 10, 3
FAMILY = mesax.ClimbFamily(num_actions=ACTIONS, num_stages=STAGES, counts=(2,))
NUM_TRAIN, NUM_TEST = 10, 4


def meta_train(path):
    """A small MESA run, if it is not there yet; learning the test tasks is left to the learner below."""
    entry = mesax.experiment("mesa", "climb-multi-mixed", "quick")
    method = replace(
        entry.method,
        collect=replace(entry.method.collect, total_steps=3_000, num_evaluations=1),
        explore=replace(entry.method.explore, total_steps=8_000, num_evaluations=1),
        num_explorers=12,
        coverage_episodes=20,
    )
    schedule = replace(entry.schedule, total_steps=2_000, warmup_steps=1_000)
    own = replace(entry, family=FAMILY, method=method, schedule=schedule)
    return mesax.run_experiment(
        replace(own, num_train_tasks=NUM_TRAIN, num_test_tasks=NUM_TEST), path, env="climb-pairs"
    )


class RandomPlayer:
    """Uniformly random agents, with the interface of an explorer."""

    def __init__(self, random):
        self.random = random

    def act(self, seen):
        return self.random.integers(ACTIONS, size=len(seen))


def learn(env, mixer, who, seed, num_episodes, epsilon=0.1, rate=0.5, batch_size=16):
    """Q-learning with replay; returns the mean reward per stage of the greedy policy at the end."""
    random, values, replay = np.random.default_rng(seed), np.zeros((STAGES + 1, ACTIONS, ACTIONS)), []
    for episode in range(num_episodes):
        player = mixer.choose(episode * STAGES)  # mesax
        if player is not None and who == "random":
            player = RandomPlayer(random)
        if who == "alone":
            player = None
        observations, _ = env.reset(seed=int(random.integers(2**31)))
        for stage in range(STAGES):
            seen = np.stack([observations[agent] for agent in env.possible_agents])
            if player is not None:
                action = player.act(seen)  # mesax
            elif random.random() < epsilon:
                action = random.integers(ACTIONS, size=2)
            else:
                action = best(values[stage], random)
            observations, rewards, *_ = env.step(dict(zip(env.possible_agents, action, strict=True)))
            replay.append((stage, *action, rewards["agent_0"]))
        for index in random.integers(len(replay), size=batch_size):
            stage, first, second, reward = replay[index]
            target = reward + np.max(values[stage + 1])  # beyond the last stage there is nothing
            values[stage, first, second] += rate * (target - values[stage, first, second])
    return played(env, values, random)


def best(table, random):
    """A joint action of the highest value; ties are broken at random."""
    return random.permutation(np.argwhere(table == np.max(table)))[0]


def played(env, values, random):
    """Mean reward of the greedy policy."""
    env.reset(seed=0)
    earned = []
    for stage in range(STAGES):
        _, rewards, *_ = env.step(dict(zip(env.possible_agents, best(values[stage], random), strict=True)))
        earned.append(rewards["agent_0"])
    return np.mean(earned)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="runs/your-learner", type=Path, help="run directory; continued if it is there")
    parser.add_argument("--seeds", type=int, default=5, help="learners per test task")
    parser.add_argument("--episodes", type=int, default=200)
    options = parser.parse_args()
    hits = {name: row["high_reward_steps"] for name, row in meta_train(options.out)["explorers"]["visitors"].items()}
    print(f"on unseen tasks explorers are paid 1 {hits['all explorers']:.3f} times an episode", end=", ")
    print(f"random play {hits['uniform']:.3f} times (0.03 in the long run)")
    explorers = mesax.load_explorers(options.out)  # mesax
    tasks = FAMILY.split(0, NUM_TRAIN, NUM_TEST).test
    found = {}
    for who in ("alone", "random", "explorers"):
        returns = []
        for task in range(NUM_TEST):
            env = mesax.parallel_env(FAMILY, mesax.tree_index(tasks, task))
            for seed in range(options.seeds):
                mixer = mesax.EpisodeMixer(explorers, total_steps=options.episodes * STAGES, seed=seed)  # mesax
                returns.append(learn(env, mixer, who, seed, options.episodes))
        found[who] = np.mean(returns)
        spread = np.std(returns) / np.sqrt(len(returns))
        print(f"{who:10} reward per stage {found[who]:.3f} +- {spread:.3f} over {len(returns)} learners; 1 is optimal")
    gain = found["explorers"] - max(found["alone"], found["random"])
    print(f"explorers {'help' if gain > 0.02 else 'do not help'}: {gain:+.3f} against the better of the others")


if __name__ == "__main__":
    main()
