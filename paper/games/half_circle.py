"""Point navigation to goals on a half-circle: MAESN must be ahead after twenty episodes on a goal it has not seen.

Budgets are those of the proof: a test task is nine rounds of twenty episodes, and all is evaluated after each of them.
"""

from __future__ import annotations

from dataclasses import replace

from mesax.baselines.maesn.learner import LatentPolicyGradient
from mesax.mesa.method import Mesa
from mesax.methods.preset import NamedLearner, Preset
from mesax.nets import Mlp
from mesax.suites.foreign import presets as foreign
from mesax.suites.tables import columns
from mesax.training.schedule import Budget
from paper.envs.half_circle import HalfCircleFamily

FAMILY = HalfCircleFamily()
EPISODES = 20
"""Episodes of a round on a test task."""
LEARNER = columns(
    paper=LatentPolicyGradient(Mlp((100, 100))),
    # Latents that are drawn to the prior more strongly say less of their tasks.
    quick=LatentPolicyGradient(kl_weight=0.01),
)


def preset(name: str) -> Preset:
    """The settings of any environment, with more training tasks, and MAESN's own."""
    plain = foreign.preset(FAMILY, name)
    method = plain.mesa.method
    assert isinstance(method, Mesa)
    mesa = plain.mesa
    if name == "quick":
        mesa = replace(mesa, num_train_tasks=20, num_test_tasks=20, lanes=20, eval_episodes=1)
        method = replace(method, collect=replace(method.collect, total_steps=60_000))
        mesa = replace(mesa, method=replace(method, explore=replace(method.explore, total_steps=600_000)))
    budget = Budget(9 * EPISODES * FAMILY.env.spec.horizon, EPISODES, 9)
    return Preset(mesa, plain.learners, own={"maesn": NamedLearner(LEARNER[name], budget)})
