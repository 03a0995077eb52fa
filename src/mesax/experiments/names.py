"""Names a person can type, with a line about each; no JAX here, so that `--help` and `list` answer at once."""

from __future__ import annotations

METHODS = {
    "mesa": "meta-learned exploration policies around the learner (this paper)",
    "plain": "the same learner alone: the control without explorers",
    "uniform": "the same learner, mixed with uniformly random episodes as MESA mixes its explorers",
    "maddpg": "MADDPG as published (decentralized actor gradient)",
    "qmix": "QMIX: monotonic value decomposition",
    "mappo": "MAPPO: on-policy, clipped updates, centralized values",
    "mappo-rnd": "MAPPO with random network distillation: a bonus for what is new",
}
WRAPPERS = ("mesa", "uniform", "plain")
"""Methods that take a learner."""
LEARNERS = {
    "maddpg": "MADDPG as published",
    "coordinated": "MADDPG whose actors agree on joint actions",
    "iql": "independent Q-learning",
    "vdn": "value decomposition by a sum",
    "qmix": "value decomposition by a monotonic net",
    "qplex": "value decomposition into advantages: represents every game with an optimum",
}
ENVIRONMENTS = {
    "climb-one": "one-step climb game: 2 agents, 10 actions, k in {1, 2}",
    "climb-multi": "five-stage climb game: own (k, u) at every stage",
    "mpe-2a3l": "particle world: 2 agents among 3 landmarks (the paper's visualization)",
    "mpe-2a5l": "particle world: 2 agents meet at one of 5 landmarks",
    "mpe-2a6l": "particle world: 2 agents meet at one of 6 landmarks",
    "mpe-3a5l": "particle world: 2 of 3 agents meet at one of 5 landmarks",
    "mpe-3a6l": "particle world: 2 of 3 agents meet at one of 6 landmarks",
    "swimmer": "MuJoCo swimmer: two joints meet at a hidden angle (needs the extra 'mujoco')",
}
PRESETS = {
    "smoke": "seconds: checks that everything runs",
    "quick": "minutes on two cores: learns for real",
    "paper": "the paper's networks and budgets",
}
