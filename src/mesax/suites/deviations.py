"""Every difference from the paper in a line: what `mesax list --deviations` prints, and docs/deviations.md explains.

A test holds the two to each other: each line here has an entry there, in the same order.
"""

from __future__ import annotations

DEVIATIONS: dict[str, dict[str, str]] = {
    "Tasks and environments": {
        "authors-worlds": "`mpe-*`, `swimmer`: where the paper is silent, as in its authors' code",
        "stage-counts": "`climb-multi`: k = 2 at every stage, as in the authors' code; the text lets k vary",
        "observation": "`climb-multi`: the stage alone is seen, as in the authors' code; the text has the history too",
        "agents-on-target": "with three agents two belong on the target, and the third elsewhere",
        "layouts": "`mpe-*`: targets share layouts; test tasks of a seed are on the authors' own map of it",
        "hard-worlds": "`mpe-*-hard`: the authors' difficulty is .3 instead of .1; which they used is not known",
        "test-tasks": "five by default; the seed determines which",
        "draws": "maps and a seed's first test tasks are the authors' own; starts and all other tasks are our draws",
        "action-order": "`mpe-*`: actions are numbered as in mpe2: stay, -x, +x, -y, +y; the authors have +x first",
        "horizon": "a climb game terminates after its last stage; other worlds are cut, and the cut is bootstrapped",
        "stratified-tasks": "`climb-one`: k takes its values in turn, so both are equally frequent",
        "disjoint": "never the same task in training and test; single stages may recur",
        "counts-reported": "results are also given by k, everywhere",
        "wide-worlds": "`wide-*`: 80 steps, radius 0.2, walls at ±1, own layouts, velocities are seen, mpe2's order",
    },
    "MADDPG": {
        "network": "layer norms and two dense layers around the GRU in preset `paper`; dense nets in the others",
        "seen-changes": "`quick`, `smoke`, `mpe-*`: dense nets also see what changed since the step before",
        "uniform-init": "uniform weights with the variance of orthogonal ones",
        "separate-actors": "one actor net per agent",
        "one-critic": "one critic for all agents",
        "partners": "in the actor's gradient, partners act by their current policies, not as in the replay",
        "straight-through": "straight-through Gumbel samples, argmax in targets, executed actions in the replay",
        "recurrent-targets": "a recurrent critic remembers the actions that were played",
        "logit-penalty": "mean squared logits are penalized, as in the original MADDPG",
        "exploration": "after the random steps, random actions (on the swimmer noise) by a schedule of ours",
        "learning-rate": "`paper`: 5e-3 in the climb games, 1e-4 elsewhere; `quick`: 1e-3 to 5e-3",
        "discount": "discount 0.99, target rate 0.005, clipping at 10 in preset `paper`",
        "rounds": "several episodes side by side, then several updates",
        "replay-size": "20,000 or 50,000 episodes in climb games, elsewhere 1,000 or 5,000 (`quick`: 3,000 or 25,000)",
        "coordinated-actor": "`quick`, `smoke`, climb games: imitates the critic's best joint action",
        "quick-learner": "`quick`, `smoke`: MESA wraps a tuned learner; `plain` is that learner alone",
    },
    "Value decomposition": {
        "attention-features": "QPLEX attends by the agent's own observation",
    },
    "Stage 1: the high-reward set": {
        "random-collection": "`quick`, `smoke`, particle worlds and swimmer: stage 1 is mostly random play",
        "relabel-off": "`quick`, `smoke`: nothing is relabeled",
        "threshold": "pairs whose reward is at least R* join M_*",
        "relabel-scope": "only pairs that lead to a reward of at least R* are relabeled",
        "relabel-discount": "0.05, as printed",
        "capacity": "duplicates are removed, and M_* is thinned evenly over clusters",
        "budget": "fixed budgets instead of convergence",
    },
    "Stage 2: exploration policies": {
        "features": "joint actions; occupancy that knows the radius; joint angles; baselines have none of it",
        "stored-value": "explorers are paid the stored value of what they are near, not the task's reward",
        "visit-index": "the first visit is worth 1, not 1/0",
        "near-only": "only steps near M_* count as visits",
        "record-reward": "`quick`, `smoke`, particle worlds and swimmer: paid for records, not by Eq. (6)",
        "told-demand": "`quick`, `smoke`, particle worlds and swimmer: explorers are told what is left to visit",
        "wishes": "`quick`, `smoke`, particle worlds and swimmer: every episode draws an order of places to visit",
        "explorer-learner": "`quick`, `smoke`, particle worlds and swimmer: MAPPO trains the explorers",
        "explorer-nets": "`quick`, `smoke`, particle worlds: explorers' nets know landmarks as entities",
        "global-count": "grows by mean visits over fresh episodes, by the chance of a visit, or not at all",
        "normalize": "`quick`, `smoke`, climb games: rewards are divided by the largest bonus left",
        "clusters": "scikit-learn's KMeans, ten restarts; `quick`, `smoke`, swimmer: members far apart",
        "enough": "at most E policies, and none after 95% of the clusters are covered",
        "hidden-counts": "`paper`: neither actor nor critic sees the counts",
        "explorer-training": "each episode of stage 2 draws one of the training tasks",
        "explorer-replay": "a policy learns from a replay of all its episodes, not from the last rollout alone",
        "explorer-policy": "an explorer samples its actions, as it was trained",
        "explorer-snapshot": "`quick`, `smoke`, particle worlds: the kept explorer is the last that is fair",
        "entropy": "`quick`, `smoke`, climb games: explorers have a bonus for entropy",
        "structured-explorers": "in addition to `mesa` there is `structured`, with shared randomness and relations",
    },
    "Stage 3: new tasks": {
        "mixing": "linear, over the first part of the rounds after the random phase",
        "warm-up": "every method begins every task with the same number of random steps",
        "true-reward": "explorers' episodes are stored with the task's reward, and count as steps",
    },
    "Swimmer": {
        "swimmer-body": "our own model, held to MA-MuJoCo's by tests; joints alone are seen, as by the authors' agents",
        "swimmer-wide": "`swimmer-wide`: 3 degrees instead of 1.15, targets farther than 9 from 0, the head is seen",
        "swimmer-episodes": "evaluation takes 1000 steps; in preset `quick` training episodes take 200",
        "narrow-band-nets": "in preset `quick` observations are standardized and nets see their sines and cosines",
        "steady-explorers": "explorers' noise falls from 0.4 to 0.15",
    },
    "Evaluation": {
        "evaluation": "greedy policies, episodes of their own; final: mean of the last five evaluations or third",
        "spread": "95% intervals over seeds and tasks next to the standard deviation",
    },
    "Baselines that learn on training tasks": {
        "pretraining-base": "Pretrain and Goal are MAPPO",
        "goal-encoding": "Goal is told the target one-hot, or its angle; never k",
        "count-keys": "C-BET counts what every agent sees of itself",
    },
}
"""By the headings of that page."""
