"""How often a reward is hit in an environment: by the explorers of a run, and by random play.

Explorers are used as somebody else's code would use them: `mesax.load_explorers`, NumPy in, NumPy out.
"""

import numpy as np


def play(environment, seed, explorers, episodes):
    """Rewards `[episodes, time]` on the task of this seed, by explorers or (None) uniformly random agents."""
    random, spec = np.random.default_rng(seed), environment.spec
    running = environment.open(seed)  # the environment itself, with observations flattened, padded and checked
    rewards = np.zeros((episodes, spec.horizon))
    for episode in range(episodes):
        player = None if explorers is None else explorers.start(int(random.integers(2**31)))
        seen = running.reset(episode)
        for step in range(spec.horizon):
            outcome = running.step(at_random(spec, random) if player is None else player.act(seen))
            seen, rewards[episode, step] = outcome.obs, outcome.reward
            if outcome.terminated or outcome.truncated:
                break
    return rewards


def at_random(spec, random):
    """A uniformly random joint action."""
    if hasattr(spec.action_space, "num_actions"):
        return random.integers(spec.action_space.num_actions, size=spec.num_agents)
    return random.uniform(-1.0, 1.0, (spec.num_agents, spec.action_space.size))


def compare(environment, explorers, seeds, episodes=10):
    """Print what explorers and random play hit on these tasks; return the factor between their hits per episode."""
    hits = {}
    for name, who in (("random play", None), ("explorers", explorers)):
        rewards = np.concatenate([play(environment, seed, who, episodes) for seed in seeds])
        hits[name] = np.mean(np.sum(rewards > 0, axis=1))
        share = np.mean(np.any(rewards > 0, axis=1))
        print(f"{name:12}{hits[name]:7.3f} hits an episode; a hit in {share:6.1%} of {len(rewards)} episodes")
    # Without a single hit, random play is counted as if it had one.
    factor = hits["explorers"] / max(hits["random play"], 1 / len(rewards))
    print(f"on {len(seeds)} unseen tasks explorers hit the reward {factor:.1f} times as often as random play")
    return factor
