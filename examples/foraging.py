"""Level-based foraging with layouts as tasks: see docs/level-based-foraging.md."""

import gymnasium
import lbforaging  # noqa: F401  (it registers its environments)


class Layout(gymnasium.Wrapper):
    def reset(self, seed=None, options=None):
        for player in self.unwrapped.players:
            player.position = None  # else the last episode's positions would decide who may start where
        return self.env.reset(seed=self.task)


def make(seed):
    env = Layout(gymnasium.make("Foraging-5x5-2p-1f-v3", disable_env_checker=True))
    env.task = seed
    return env
