"""What pays is learned: whom the model ignores, what the fit finds, and what is said of it."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.ours.learned_reward import (
    HIGH,
    LESS,
    UNPAID,
    HeldOut,
    PaidSteps,
    PayModel,
    decided,
    judged,
    likelihoods,
    of_others,
    precision_at,
    softened,
)
from mesax.ours.verdict import overall, verdict
from mesax.results.figures import entity_beliefs
from mesax.results.tables import fit_table
from mesax.store.reading import RunResults

MODEL = PayModel.create(2, 8, jax.random.key(1))
SEEN = jax.random.normal(jax.random.key(2), (4, 3, 5, 2))


@pytest.mark.parametrize("head", ["anchor", "full"])
def test_entities_and_agents_are_sets(head):
    logits = MODEL.logits(SEEN, head)
    order = np.array([3, 0, 4, 2, 1])
    np.testing.assert_allclose(MODEL.logits(SEEN[:, :, order], head), logits[:, order], atol=1e-5)
    np.testing.assert_allclose(MODEL.logits(SEEN[:, np.array([2, 0, 1])], head), logits, atol=1e-5)
    assert float(jnp.std(logits)) > 0


def test_the_anchor_sees_lengths_alone():
    turned = SEEN[..., ::-1] * jnp.array([[[[1.0, -1.0]]]])
    np.testing.assert_allclose(MODEL.logits(turned, "anchor"), MODEL.logits(SEEN, "anchor"), atol=1e-5)
    assert np.abs(MODEL.logits(turned) - MODEL.logits(SEEN)).max() > 1e-4


def test_others_by_hand():
    mean, largest = of_others(jnp.array([[1.0, 0.0], [4.0, 0.0], [2.0, 3.0]]))
    np.testing.assert_allclose(mean, [[3.0, 1.5], [1.5, 1.5], [2.5, 0.0]])
    np.testing.assert_allclose(largest, [[4.0, 3.0], [2.0, 3.0], [4.0, 0.0]])
    alone = of_others(jnp.array([[1.0, 2.0]]))
    np.testing.assert_array_equal(alone[0], [[0.0, 0.0]])
    np.testing.assert_array_equal(alone[1], [[0.0, 0.0]])


def steps_of(kind: list[int], task: list[int]) -> PaidSteps:
    seen = np.arange(len(kind), dtype=np.float32).reshape(-1, 1, 1, 1)
    return PaidSteps.gathered(seen, np.array(kind), np.array(task), np.ones(len(kind)), max(task) + 1)


def test_the_likelihood_of_a_task_counts_high_and_other_steps_alike():
    steps = steps_of([HIGH, HIGH, LESS, LESS, LESS, LESS, UNPAID], [0] * 7)
    logits = np.array([[2.0, -1.0]] * 2 + [[-2.0, 1.0]] * 4 + [[9.0, 9.0]])
    right, wrong = np.log(1 / (1 + np.exp(-2.0))), np.log(1 / (1 + np.exp(1.0)))
    np.testing.assert_allclose(likelihoods(logits, steps), [[2 * right + 2 * right, 2 * wrong + 2 * wrong]])


def test_beliefs_are_chances_and_then_decisions():
    scores = np.array([[0.0, np.log(3.0)], [-5.0, -5.0]])
    np.testing.assert_allclose(softened(scores), [[0.25, 0.75], [0.5, 0.5]])
    np.testing.assert_array_equal(decided(scores), [[0, 1], [1, 0]])


def test_precision_by_hand():
    scores, true = np.array([5.0, 4.0, 3.0, 2.0, 1.0]), np.array([True, False, True, True, False])
    weight = np.array([1.0, 3.0, 1.0, 1.0, 7.0])
    assert precision_at(scores, true, weight, 0.3) == 1.0
    assert precision_at(scores, true, weight, 0.6) == pytest.approx(2 / 5)
    assert precision_at(scores, true, weight, 1.0) == pytest.approx(3 / 6)
    assert precision_at(scores, np.zeros(5, bool), weight, 0.9) is None


class Told:
    """A model that says what it was given: the first agent's numbers, entity by entity."""

    def logits(self, seen, head="full"):
        del head
        return seen[:, 0, :, 0]


def world(random: np.random.Generator, tasks: int, knows: bool) -> PaidSteps:
    """Steps of tasks whose entity is their number modulo 3; the model may know what it takes, or nothing."""
    task = np.repeat(np.arange(tasks), 300)
    kind = np.where(np.arange(len(task)) % 300 < 20, HIGH, np.where(np.arange(len(task)) % 300 < 60, LESS, UNPAID))
    logits = random.normal(size=(len(task), 3))
    if knows:
        logits[np.arange(len(task)), task % 3] = np.where(kind == HIGH, 6.0, -6.0)
    return PaidSteps.gathered(logits[:, None, :, None], kind, task, np.ones(len(task)), tasks)


def test_a_model_that_knows_is_told_from_one_that_does_not(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "mesax.ours.learned_reward.logits_of", lambda model, seen, head: np.asarray(model.logits(seen, head))
    )
    random = np.random.default_rng(0)
    knows, guesses = (judged(Told(), world(random, 6, known), [1, 4]) for known in (True, False))
    assert knows is not None and guesses is not None
    assert knows.steps == guesses.steps == 20  # half of the high steps of two tasks say which entity counts
    assert knows.precision == 1.0 and knows.log_likelihood == pytest.approx(-np.log1p(np.exp(-6.0)))
    assert guesses.precision < 0.2 and guesses.log_likelihood < guesses.by_chance
    assert knows.by_chance == pytest.approx(np.log(1 / 3) / 3 + 2 * np.log(2 / 3) / 3)
    assert verdict(knows, True, True).endswith("explorers will work.")
    assert "MESA will not help here" in verdict(guesses._replace(precision=0.02), True, True)


def test_the_verdict_says_what_may_help():
    weak = HeldOut(-0.9, -0.6, 0.01, 50)
    assert "declare" not in verdict(weak, True, True) and "more of what pays" in verdict(weak, True, True)
    assert "(method.reward.entities)" in verdict(weak, True, False)
    assert "No two training tasks share a layout" in verdict(weak, False, True)
    assert "too few high rewards" in verdict(None, True, True)


def test_layouts_count_by_their_high_steps():
    together = overall([HeldOut(-0.1, -0.6, 0.9, 30), HeldOut(-0.5, -0.6, 0.5, 10)])
    assert together is not None
    np.testing.assert_allclose(together, (-0.2, -0.6, 0.8, 40))
    assert overall([]) is None


def test_a_report_draws_what_is_believed_and_says_what_it_is_worth():
    rows = [
        {
            "phase": "assignment",
            "step": 0,
            "task": task,
            "layout": task // 2,
            "entity": task % 2,
            "high_steps": 3 * task,
        }
        for task in range(4)
    ]
    worth = {"phase": "verdict", "step": 0, "verdict": "so it is", "entities": 3, "high_steps": 18}
    worth |= {"held_out_precision_at_recall_90": None}
    run = RunResults(Path("run"), {}, (), {}, (*rows, worth), None, "done")
    (image,) = entity_beliefs(run).axes[0].get_images()
    shown = np.asarray(image.get_array())
    assert shown.shape == (3, 4) and not shown[2].any()
    np.testing.assert_allclose(shown[[0, 1, 0, 1], range(4)], np.log1p([1, 4, 7, 10]))
    table = fit_table(run)
    assert table.note == "so it is" and ("declared entities", "3") in table.rows
    assert dict(table.rows)["precision where recall is 90%, on training layouts left out"] == "not measured"
    assert not fit_table(RunResults(Path("run"), {}, (), {}, (), None, "done")).rows
