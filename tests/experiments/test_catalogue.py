"""Every named run is a value that builds, is told apart from the others, survives JSON and has the paper's numbers."""

import json
import sys
from dataclasses import replace
from importlib import import_module
from itertools import product

import jax
import jax.numpy as jnp
import pytest

from mesax.algorithms.actor_updates import ExpectedGradient, GumbelGradient
from mesax.algorithms.binned import Binned
from mesax.algorithms.coordinated import JointImprovement
from mesax.algorithms.normalized import Normalized
from mesax.baselines.controls import Diagonal, Plain, Uniform
from mesax.baselines.rnd import Rnd
from mesax.errors import UsageError
from mesax.experiments.catalogue import builder, experiment, method_name
from mesax.experiments.names import AROUND_ANY, ENVIRONMENTS, LEARNERS, METHODS, PRESETS, WRAPPERS
from mesax.experiments.overrides import digest
from mesax.experiments.rebuild import experiment_of
from mesax.experiments.request import Request, paper_difference, run_json
from mesax.mesa.collect import Threshold
from mesax.mesa.coverage import CoverageReward
from mesax.mesa.method import Mesa
from mesax.methods.base import LARGEST_SEED, Experiment
from mesax.nets import Adam, Gru
from mesax.ours.structured import StructuredMesa
from mesax.rewards.base import TaskReward
from mesax.suites.climb.suite import ClimbSuite
from mesax.suites.registry import suite_of
from mesax.training.schedule import Budget, Schedule
from mesax.types import Box
from paper.games import suite as proofs

EARLIER_STAGES = {"structured": ["collect", "explore"], "maesn": ["meta"]}
EARLIER_STAGES |= {method: ["pretrain"] for method in ("pretrain", "goal", "cbet")}
EARLIER_STAGES["told"] = EARLIER_STAGES["mesa"] = ["collect", "explore", "gather"]
EARLIER_STAGES |= {"filled": ["collect"], "learned": ["collect", "fit", "explore", "gather"]}

SCRIPTED = ("optimum", "safe")
OFF_POLICY = [name for name in LEARNERS if not name.startswith("mappo")]
OF_VALUES = ("iql", "vdn", "qmix", "qplex", "dmaq", "maven", "emc")
# The other learners share their class with one of these, and are wrapped below.
CELLS = list(product((*WRAPPERS, "maddpg", "qmix", "mappo", "mappo-rnd"), ENVIRONMENTS, PRESETS))
GAMES = list(product(ENVIRONMENTS, PRESETS))
KINDS = ("climb-one", "climb-multi-mixed", "wide-2a5l", "wide-3a5l", "swimmer-wide")
PROOF_GAMES = [game.name for game in proofs.GAMES]
WORLDS = [name for name in ENVIRONMENTS if name not in PROOF_GAMES]
THREE_AGENTS = [f"{kind}-{world}" for kind in ("mpe", "wide") for world in ("3a5l", "3a6l")]
OWN_ALONE = (*THREE_AGENTS, "mpe-3a5l-hard", "mpe-3a5l-hard-k3")
"""Where MESA's learner has other settings if no explorer helps it, but in preset paper."""
PUBLISHED_STEPS = {"mpe": 3_000_000, "wide": 3_000_000, "swimmer": 5_000_000}
PUBLISHED_TESTS = {"mpe": 10_000, "wide": 10_000, "swimmer": 10_000, "climb": 1_000}
"""What learners of values have in preset paper, by the kind of world; in climb games they have MESA's steps."""


def mesa_of(env: str, preset: str) -> tuple[Experiment, Mesa]:
    entry = experiment("mesa", env, preset)
    assert isinstance(entry.method, Mesa)
    return entry, entry.method


@pytest.mark.parametrize("method", dict.fromkeys(method for method, _, _ in CELLS))
def test_every_cell_builds_and_ends_with_the_test_tasks(method):
    """A test for each method: as tests of their own, all these cells would cost more than what they check."""
    for env, preset in GAMES:
        try:
            check_cell(method, env, preset)
        except BaseException as error:  # of pytest's too
            error.add_note(f"in {env}, preset {preset}")
            raise


def check_cell(method: str, env: str, preset: str) -> None:
    entry = experiment(method, env, preset)
    if method in ("structured", "diagonal") and isinstance(entry.family.env.spec.action_space, Box):
        with pytest.raises(UsageError, match="discrete actions"):
            entry.method.check(entry)
        return
    if method == "tour" and suite_of(env).preset(env, preset).tour is None:
        with pytest.raises(UsageError, match="does not say what these are: use 'uniform'"):
            entry.method.check(entry)
        return
    if method == "goal" and suite_of(env).preset(env, preset).goal is None:
        with pytest.raises(UsageError, match="does not say what that is: use 'pretrain'"):
            entry.method.check(entry)
        return
    if method == "transfer":
        with pytest.raises(UsageError, match="whose explorers"):
            entry.method.check(entry)
        return
    if method in SCRIPTED and suite_of(env).preset(env, preset).script is None:
        with pytest.raises(UsageError, match="does not say how: use a suite of your own whose Preset has a script"):
            entry.method.check(entry)
        return
    *earlier, last = entry.method.stages(entry)
    assert [stage.name for stage in earlier] == EARLIER_STAGES.get(method, [])
    horizon = entry.training_env.spec.horizon
    runs = entry.num_test_tasks * entry.num_repeats
    assert last.name == "adapt" and sum(last.job_steps) == runs * entry.schedule.steps(horizon)
    family = suite_of(env).family(env)
    assert type(entry.family) is type(family) and (entry.family == family or preset == "smoke")
    assert hash(entry) == hash(experiment(method, env, preset))


# The settings of every cell are read back in `test_rebuild.py`; a run.json adds facts of environments and of methods.
@pytest.mark.parametrize(
    "method, env, preset", [cell for cell in CELLS if cell[2] == "smoke" and (cell[0] == "mesa" or cell[1] in KINDS)]
)
def test_a_request_survives_its_run_json(method, env, preset):
    request = Request(method, env, preset, 7, 2, (("schedule.num-envs", "16"),))
    entry = request.experiment()
    assert (entry.seed, entry.num_test_tasks, entry.schedule.num_envs) == (7, 2, 16)
    described = json.loads(json.dumps(run_json(request, entry, ())))
    assert experiment_of(described) == entry
    assert described["id"].startswith(f"{method}-{env}-{preset}-seed7-")
    assert [len(described[name]) for name in ("train_tasks", "test_tasks")] == [entry.num_train_tasks, 2]


def test_names_are_those_of_the_catalogue():
    for position, word in enumerate(("method", "environment", "preset")):
        names = ["mesa", "climb-one", "smoke"]
        names[position] = "nonsense"
        with pytest.raises(UsageError, match=f"unknown {word} 'nonsense'; choose one of") as refused:
            experiment(*names)
        choices = (METHODS, ENVIRONMENTS, PRESETS)[position]
        assert all(choice in str(refused.value) for choice in choices)


def test_an_experiment_knows_the_name_of_its_method():
    names = {name: method_name(experiment(name, "climb-one", "smoke")) for name in WRAPPERS}
    assert names == {name: "mesa" if name == "told" else name for name in WRAPPERS}
    assert method_name(experiment("mesa", "wide-2a5l", "smoke")) == "mesa", "though it is a SteadyMesa"
    own = type("Plain", (Plain,), {"__module__": "mine"})
    entry = experiment("qmix", "climb-one", "smoke")
    assert (method_name(entry), method_name(replace(entry, method=own()))) == ("plain", "Plain")


def test_different_cells_have_different_digests():
    digests: dict[str, list[tuple[str, str, str]]] = {}
    for cell in CELLS:
        if cell[0] != "told":  # it is `mesa` wherever that is told by a map
            digests.setdefault(digest(experiment(*cell)), []).append(cell)
    # Presets that differ in how they learn are one for those who do not.
    for cells in digests.values():
        cells[1:] = [cell for cell in cells[1:] if cell[0] not in SCRIPTED or cell[:2] != cells[0][:2]]
    # The learner that MESA wraps in the paper *is* MADDPG, so there the two controls are one experiment.
    shared = [cells for cells in digests.values() if len(cells) > 1]
    assert shared == [[("plain", env, "paper"), ("maddpg", env, "paper")] for env in ENVIRONMENTS]
    requests = [Request("mesa", "climb-one", seed=seed) for seed in range(3)]
    seeds = [request.run_id(request.experiment()) for request in requests]
    assert len(set(seeds)) == 3


@pytest.mark.parametrize("env, preset", GAMES)
def test_the_controls_share_learner_and_schedule_with_mesa(env, preset):
    entry, mesa = mesa_of(env, preset)
    for method, kind in (
        ("plain", Plain),
        ("uniform", Uniform),
        ("diagonal", Diagonal),
        ("structured", StructuredMesa),
    ):
        control = experiment(method, env, preset)
        assert isinstance(control.method, kind)
        for field in ("family", "schedule", "num_test_tasks", "num_train_tasks", "eval_episodes", "lanes"):
            assert getattr(control, field) == getattr(entry, field), field
        own = method in ("plain", "uniform") and env in OWN_ALONE and preset != "paper"
        assert control.algorithm == (suite_of(env).preset(env, preset).alone if own else entry.algorithm)
        assert type(control.algorithm) is type(entry.algorithm) and (control.algorithm != entry.algorithm) == own
    assert experiment("uniform", env, preset).method == Uniform(mesa.mixing)
    assert experiment("diagonal", env, preset).method == Diagonal(mesa.mixing)
    structured = experiment("structured", env, preset).method
    assert isinstance(structured, StructuredMesa)
    assert (structured.collect, structured.threshold, structured.mixing) == (mesa.collect, mesa.threshold, mesa.mixing)
    published = experiment("maddpg", env, preset).algorithm
    published = published.algorithm if isinstance(published, Normalized) else published
    assert published.actor_update == GumbelGradient("policy")


@pytest.mark.parametrize("env, steps", [("climb-one", 50_000), ("climb-multi-mixed", 100_000)])
def test_the_paper_preset_has_the_numbers_of_table_1(env, steps):
    entry, mesa = mesa_of(env, "paper")
    assert (entry.family.num_agents, entry.family.num_actions) == (2, 10)
    assert entry.family.num_stages == (1 if env == "climb-one" else 5)
    assert (entry.schedule.total_steps, mesa.explore.total_steps, mesa.collect.total_steps) == (steps, steps, 30_000)
    for schedule in (entry.schedule, mesa.collect, mesa.explore):
        assert (schedule.batch_size, schedule.warmup_steps) == (32, 3_000)
    assert entry.num_train_tasks == 10
    for learner in (entry.algorithm, mesa.explorer):
        assert learner.actor_net.hidden == learner.critic_net.hidden == 64
        assert isinstance(learner.actor_net, Gru) and isinstance(learner.critic_net, Gru)
        assert learner.actor_optimizer == learner.critic_optimizer == Adam(5e-3)
        assert learner.actor_update == GumbelGradient("policy")
    assert mesa.threshold == Threshold(1.0)
    assert (mesa.relabel_discount, mesa.reward.decay_power, mesa.num_explorers) == (0.05, 5.0, 4)
    assert not mesa.reward.normalize and mesa.global_count == "mean"


@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_the_budget_is_met_to_within_a_twentieth(env):
    entry, mesa = mesa_of(env, "paper")
    for schedule in (entry.schedule, mesa.collect, mesa.explore):
        assert schedule.steps(entry.family.env.spec.horizon) == pytest.approx(schedule.total_steps, rel=0.05)


@pytest.mark.parametrize(
    "env, agents, steps, explorers", [("wide-2a5l", 2, 3_000_000, 2), ("wide-3a6l", 3, 6_000_000, 4)]
)
def test_the_paper_preset_of_particle_worlds_has_its_numbers(env, agents, steps, explorers):
    entry, mesa = mesa_of(env, "paper")
    assert (entry.family.env.num_agents, entry.family.count, entry.num_train_tasks) == (agents, 2, 30)
    assert (entry.schedule.total_steps, mesa.explore.total_steps) == (steps, 3_000_000)
    assert (mesa.collect.total_steps, mesa.num_explorers) == (500_000, explorers)
    for schedule in (entry.schedule, mesa.collect, mesa.explore):
        assert (schedule.batch_size, schedule.warmup_steps) == (300, 50_000)
    for learner in (entry.algorithm, mesa.explorer):
        assert (learner.actor_net, learner.critic_net) == (Gru(64), Gru(64))
        assert learner.actor_optimizer == learner.critic_optimizer == Adam(1e-4)
        assert learner.actor_update == GumbelGradient("policy")
    assert type(mesa) is Mesa and isinstance(mesa.reward, CoverageReward)


def test_the_paper_preset_of_the_swimmer_has_its_numbers():
    entry, mesa = mesa_of("swimmer-wide", "paper")
    assert (entry.num_train_tasks, entry.num_test_tasks, entry.family.env.spec.horizon) == (30, 6, 1_000)
    assert (entry.schedule.total_steps, mesa.explore.total_steps) == (2_500_000, 3_000_000)
    assert (mesa.collect.total_steps, mesa.num_explorers, entry.training_horizon) == (1_000_000, 2, None)
    for schedule in (entry.schedule, mesa.collect, mesa.explore):
        assert (schedule.batch_size, schedule.warmup_steps) == (8, 50_000)
    for learner in (entry.algorithm, mesa.explorer):
        assert (learner.actor_net, learner.critic_net) == (Gru(64), Gru(64))
        assert learner.actor_optimizer == learner.critic_optimizer == Adam(1e-4)
    assert type(mesa) is Mesa and isinstance(mesa.reward, CoverageReward)
    # Both joints three degrees off: the farthest from the middle of the band at which the optimum is still paid.
    assert mesa.reward.distance_threshold == pytest.approx(2**0.5 * 3 * 3.14159265 / 180, abs=1e-4)


@pytest.mark.parametrize("env, preset", GAMES)
def test_the_quick_presets_have_their_own_learner_and_say_how_they_differ(env, preset):
    request = Request("mesa", env, preset, seed=3, num_test_tasks=2)
    paths = {path for path, _, _ in paper_difference(request, request.experiment())}
    learner = request.experiment().algorithm
    if env.startswith("swimmer"):
        assert isinstance(learner, Normalized) == (preset != "paper") == ("algorithm" in paths)
    elif env in PROOF_GAMES:
        assert ("algorithm.algorithm.actor-net" in paths) == (preset != "paper")
    else:
        own = ExpectedGradient if env.startswith(("mpe", "wide")) else JointImprovement
        assert isinstance(learner.actor_update, own) == (preset != "paper") == ("algorithm.actor-update" in paths)
    assert not paths & {"seed", "num-test-tasks", "lanes"}
    assert (preset == "paper") == (not paths)


@pytest.mark.parametrize("env, preset", GAMES)
def test_baselines_have_the_same_tasks_steps_and_evaluations(env, preset):
    """All but learners of values in preset paper, whose steps and evaluations are the authors' own."""
    entry, _ = mesa_of(env, preset)
    horizon = entry.training_env.spec.horizon
    for method in LEARNERS:
        baseline = experiment(method, env, preset)
        for field in (
            "family",
            "num_test_tasks",
            "num_train_tasks",
            "num_repeats",
            "eval_episodes",
            "training_horizon",
        ):
            assert getattr(baseline, field) == getattr(entry, field), field
        assert isinstance(baseline.schedule, Schedule) == (not method.startswith("mappo"))
        assert isinstance(baseline.reward_model, Rnd) == (method == "mappo-rnd")
        if preset == "paper" and method in OF_VALUES and env in WORLDS:
            continue
        assert baseline.schedule.total_steps == entry.schedule.total_steps
        assert baseline.schedule.num_evaluations == entry.schedule.num_evaluations
        if preset != "smoke":  # which has too few rounds to divide
            assert baseline.schedule.steps(horizon) == pytest.approx(entry.schedule.steps(horizon), rel=0.05)
            # Rounds of 128 environments are so few that evaluations are fewer: docs/methods/mappo.md.
            few = {"mpe-2a": 31, "wide-2": 29}.get(env[:6]) if preset == "paper" and "mappo" in method else None
            assert baseline.schedule.chunks(horizon)[0] == pytest.approx(
                few or entry.schedule.chunks(horizon)[0], abs=0 if few else 1
            )
    bonus = experiment("mappo-rnd", env, preset)
    assert replace(bonus, reward_model=TaskReward()) == experiment("mappo", env, preset)
    named = Request("mappo", env, preset, overrides=(("reward_model.weight", "0.1"), ("reward-model", "rnd")))
    assert named.experiment() == replace(bonus, reward_model=replace(bonus.reward_model, weight=0.1))


@pytest.mark.parametrize("env", WORLDS)
def test_paper_learners_of_values_have_the_authors_steps_and_evaluations(env):
    """In their public code: an episode, then an update, tests at fixed distances; EMC updates twice but in games."""
    entry, _ = mesa_of(env, "paper")
    kind = env.partition("-")[0]
    steps = PUBLISHED_STEPS.get(kind, entry.schedule.total_steps)
    for method in OF_VALUES:
        schedule = experiment(method, env, "paper").schedule
        twice = method == "emc" and not env.startswith("climb")
        assert (schedule.num_envs, schedule.updates_per_round) == (1, 2 if twice else 1)
        assert (schedule.batch_size, schedule.replay_capacity) == (32, 5_000)
        assert schedule.warmup_rounds(entry.training_env.spec.horizon) == 32
        assert (schedule.total_steps, schedule.num_evaluations) == (steps, steps // PUBLISHED_TESTS[kind])


@pytest.mark.parametrize("env", ["climb-one", "climb-multi", "mpe-2a5l", "wide-2a5l", "swimmer", "swimmer-wide"])
@pytest.mark.parametrize("method", ["qmix", "vdn", "qplex", "iql", "mesa", "uniform"])
def test_paper_value_learners_explore_for_50_000_steps(env, method):
    """Counted from their first one, as in the authors' code, in which the first 32 episodes are part of them."""
    entry = experiment(method, env, "paper", None if method in LEARNERS else "qmix")
    algorithm = entry.algorithm.algorithm if isinstance(entry.algorithm, Binned) else entry.algorithm
    horizon = entry.training_env.spec.horizon
    first, last = entry.schedule.warmup_rounds(horizon), -(-50_000 // entry.schedule.steps_per_round(horizon))
    epsilon = [
        float(algorithm.exploration(entry.schedule.elapsed(horizon, jnp.asarray(number)))) for number in (first, last)
    ]
    assert epsilon == pytest.approx([1.0 - 0.95 * 32 * horizon / 50_000, 0.05])


LEARNT = list(product(OFF_POLICY, KINDS, PRESETS))


@pytest.mark.parametrize("learner, env, preset", LEARNT)
def test_every_learner_can_be_wrapped(learner, env, preset):
    plain, mesa, uniform = (experiment(method, env, preset, learner) for method in ("plain", "mesa", "uniform"))
    assert plain.algorithm == mesa.algorithm == uniform.algorithm
    assert plain.schedule == mesa.schedule == uniform.schedule
    usual = experiment("mesa", env, preset).schedule  # some have more to learn from the same steps
    if preset == "paper" and learner in OF_VALUES:
        assert plain.schedule.num_envs == 1, "the authors' own: see above"
    else:
        assert replace(plain.schedule, updates_per_round=usual.updates_per_round) == usual
        assert plain.schedule.updates_per_round in (usual.updates_per_round, 2 * usual.updates_per_round)
    assert mesa.method == experiment("mesa", env, preset).method
    spec = plain.training_env.spec
    jax.eval_shape(lambda key: plain.algorithm.greedy(spec, plain.algorithm.init(spec, key)), jax.random.key(0))
    assert experiment(learner, env, preset) == plain


@pytest.mark.parametrize("env, preset", list(product(KINDS, PRESETS)))
def test_the_coordinated_learner_is_the_own_one_with_another_update_and_a_joint_critic(env, preset):
    entry = experiment("mesa", env, preset, "coordinated")
    own, chosen = experiment("mesa", env, preset).algorithm, entry.algorithm
    assert type(own) is type(chosen)
    if isinstance(chosen, Normalized):
        own, chosen = own.algorithm, chosen.algorithm
    assert isinstance(chosen.actor_update, JointImprovement) and not chosen.additive_critic
    back = {name: getattr(own, name) for name in ("actor_update", "actor_batch_size", "additive_critic")}
    assert replace(chosen, **back) == own
    assert [stage.name for stage in entry.method.stages(entry)] == [*EARLIER_STAGES["mesa"], "adapt"]


def test_names_that_do_not_fit_are_refused_with_what_would():
    with pytest.raises(UsageError, match="unknown learner 'sarsa'; choose one of maddpg, coordinated"):
        experiment("mesa", "climb-one", "quick", "sarsa")
    with pytest.raises(UsageError, match="unknown learner ''; choose one of maddpg"):
        experiment("mesa", "climb-one", "quick", "")
    with pytest.raises(
        UsageError, match="'mappo' is a learner itself: --learner goes with mesa, told, transfer, learned, structured, "
    ):
        experiment("mappo", "climb-one", "quick", "qmix")
    for method in (name for name in AROUND_ANY if not WRAPPERS[name].takes_on_policy):
        with pytest.raises(
            UsageError, match=r"'mappo' learns on-policy.*; choose one of maddpg, .*qplex, .*or run it alone"
        ):
            experiment(method, "climb-one", "quick", "mappo")


def test_learners_are_those_of_the_algorithms_in_the_order_of_their_files():
    names = (
        "baselines.emc",
        "algorithms.maddpg",
        "algorithms.mappo",
        "baselines.maven",
        "baselines.rnd",
        "algorithms.value_decomposition",
    )
    modules = [import_module(f"mesax.{name}") for name in names]
    assert [item for module in modules for item in module.NAMES.items()] == list(LEARNERS.items()), "and none twice"
    assert list(METHODS) == [*WRAPPERS, *LEARNERS]


@pytest.mark.parametrize("env, preset", GAMES)
def test_every_world_has_every_learner(env, preset):
    assert set(suite_of(env).preset(env, preset).by_name) == set(LEARNERS)


def test_a_world_without_an_entry_says_what_it_has(monkeypatch):
    whole = ClimbSuite.preset
    few = ("qmix", "mappo")

    def poor(self, environment, preset):
        found = whole(self, environment, preset)
        return replace(found, learners={name: found.learners[name] for name in few})

    monkeypatch.setattr(ClimbSuite, "preset", poor)
    assert experiment("qmix", "climb-one", "smoke").method == Plain()
    with pytest.raises(
        UsageError,
        match=rf"^climb-one has no method 'vdn'; choose one of {', '.join(WRAPPERS)}, qmix, mappo, mappo-rnd$",
    ):
        experiment("vdn", "climb-one", "smoke")
    with pytest.raises(
        UsageError, match=r"^climb-one has no learner 'vdn'; choose one of qmix, or name one of your own"
    ):
        experiment("mesa", "climb-one", "smoke", "vdn")


def test_a_chosen_learner_is_part_of_the_run():
    own, chosen = Request("mesa", "climb-one"), Request("mesa", "climb-one", learner="qmix")
    assert own.run_id(own.experiment()).startswith("mesa-climb-one-")
    assert chosen.run_id(chosen.experiment()).startswith("mesa+qmix-climb-one-")
    described = json.loads(json.dumps(run_json(chosen, chosen.experiment(), ())))
    assert described["method"] == "mesa+qmix" and experiment_of(described) == chosen.experiment()


OWN_LEARNERS = """
from dataclasses import dataclass
import mesax

@dataclass(frozen=True)
class Mine(mesax.Maddpg):
    bonus: float = 0.5

@dataclass(frozen=True)
class Hungry(mesax.OffPolicy):
    needed: int

WITH_SETTINGS = Mine(bonus=2.0)
WITH_BUDGET = mesax.NamedLearner(Mine(), mesax.Schedule(640, 4, 2, warmup_steps=320, batch_size=4, replay_capacity=20))
NO_LEARNER = "nothing"
NAMED_NOTHING = mesax.NamedLearner("nothing")
NAMED_CLASS = mesax.NamedLearner(Mine)
ON_POLICY = mesax.Mappo()
WRONG_BUDGET = mesax.NamedLearner(Mine(), mesax.Budget(640))
WRONG_SCHEDULE = mesax.NamedLearner(mesax.Mappo(), mesax.Schedule())

class Breaks(Mine):
    def __init__(self):
        raise ValueError("no such\\nfile")

class Refuses(Mine):
    def __init__(self):
        raise mesax.UsageError("not on this machine")

@dataclass(frozen=True)
class On(mesax.OnPolicy):
    rate: float = 0.1

    def init(self, spec, key): ...
    def behavior(self, spec, state, elapsed): ...
    def greedy(self, spec, state): ...
    def update(self, spec, state, batch, elapsed, key): ...
"""


@pytest.fixture
def own_learners(tmp_path, monkeypatch):
    """A module of the user's in the current directory."""
    (tmp_path / "own_learners.py").write_text(OWN_LEARNERS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "own_learners", None)  # so that it is taken away again
    del sys.modules["own_learners"]


@pytest.mark.usefixtures("own_learners")
def test_a_learner_of_ones_own_is_named_by_its_module():
    request = Request("mesa", "climb-one", "smoke", learner="own_learners:Mine")
    found, usual = request.experiment(), experiment("mesa", "climb-one", "smoke")
    own = sys.modules["own_learners"]
    assert found.algorithm == own.Mine() and replace(found, algorithm=usual.algorithm) == usual
    assert request.run_id(found).startswith("mesa+own_learners.Mine-climb-one-"), "no colon in the name of a directory"
    described = json.loads(json.dumps(run_json(request, found, ())))
    assert described["modules"] == ["own_learners"] and experiment_of(described, [own]) == found
    assert experiment("plain", "climb-one", "smoke", "own_learners:WITH_SETTINGS").algorithm.bonus == 2.0
    assert experiment("plain", "climb-one", "smoke", "own_learners:WITH_BUDGET").schedule == own.WITH_BUDGET.schedule


@pytest.mark.usefixtures("own_learners")
@pytest.mark.parametrize(
    "name, message",
    [
        ("Nobody", "has no 'Nobody'; it has .*Mine"),
        ("Hungry", "cannot be a learner as it stands: TypeError: .*needed"),
        ("Breaks", "'own_learners:Breaks' cannot be a learner as it stands: ValueError: no such file$"),
        ("Refuses", "^not on this machine$"),
        ("NO_LEARNER", "'own_learners:NO_LEARNER' cannot be a learner: str is no learner: it has no init"),
        ("NAMED_NOTHING", "'own_learners:NAMED_NOTHING' cannot be a learner: str is no learner: it has no init"),
        ("NAMED_CLASS", r"Mine is a class, and a learner is one of its instances: Mine\(\)"),
        ("WRONG_BUDGET", "learns from replay, and its schedule is a Budget: give it a mesax.Schedule, or none"),
        ("WRONG_SCHEDULE", "learns on-policy, and its schedule is a Schedule: give it a mesax.Budget, or none"),
        ("ON_POLICY", "on-policy.* by 'mesa'; .* or run it alone: plain with --learner own_learners:ON_POLICY$"),
    ],
)
def test_what_is_no_learner_to_wrap_is_one_line(name: str, message: str):
    with pytest.raises(UsageError, match=message) as refused:
        experiment("mesa", "climb-one", "smoke", f"own_learners:{name}")
    assert "\n" not in str(refused.value)


@pytest.mark.usefixtures("own_learners")
def test_a_learner_of_ones_own_that_learns_on_policy_runs_wherever_nobody_else_plays():
    """For as long as MESA's would, alone or from what it has learned before."""
    usual = experiment("mesa", "climb-one", "smoke").schedule
    for method in ("plain", "pretrain", "goal"):
        found = experiment(method, "climb-one", "smoke", "own_learners:On")
        assert type(found.algorithm).__name__ == "On"
        assert found.schedule == Budget(usual.total_steps, usual.num_envs, usual.num_evaluations)
    experiment("plain", "climb-one", "smoke", "own_learners:ON_POLICY").check()
    experiment("pretrain", "climb-one", "smoke", "own_learners:ON_POLICY").check()
    experiment("cbet", "climb-one", "smoke", "own_learners:ON_POLICY").check()
    with pytest.raises(UsageError, match="not to those of On: its learner is mappo or mappo-rnd"):
        experiment("cbet", "climb-one", "smoke", "own_learners:On").check()
    with pytest.raises(UsageError, match=r"'own_learners:On' is no method; .*: plain with --learner own_learners:On$"):
        experiment("own_learners:On", "climb-one", "smoke")


def test_named_learners_that_learn_on_policy_run_alone_by_either_name():
    assert experiment("plain", "climb-one", "smoke", "mappo") == experiment("mappo", "climb-one", "smoke")


def test_seeds_that_jax_would_cut_are_refused():
    assert Request("plain", "climb-one", seed=LARGEST_SEED).experiment().seed == LARGEST_SEED
    with pytest.raises(UsageError, match=str(LARGEST_SEED)):
        Request("plain", "climb-one", seed=LARGEST_SEED + 1).experiment()
    with pytest.raises(UsageError, match="not -1"):
        Request("plain", "climb-one", seed=-1).experiment()


def test_what_mesa_means_in_a_world_is_one_line_of_its_preset():
    """With a learned reward in place of the map, `told` is what `mesa` was; around another learner, too."""
    preset = suite_of("wide-2a5l").preset("wide-2a5l", "smoke")
    learning = replace(preset, mesa=builder("learned")(preset), told=preset.mesa)
    assert builder("mesa")(learning) == builder("learned")(learning) == builder("learned")(preset)
    assert builder("told")(learning) == builder("told")(preset) == builder("mesa")(preset)
    around, plain = learning.around(preset.learners["qmix"]), preset.around(preset.learners["qmix"])
    assert builder("told")(around) == builder("told")(plain) and builder("mesa")(around) == builder("learned")(plain)
    assert builder("uniform")(learning) == builder("uniform")(preset)
