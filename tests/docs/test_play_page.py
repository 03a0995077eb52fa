"""The page to play with: it is what its parts say, computes what Python does, and works by mouse, touch and keys."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tools import three_panels
from tools.play_page import PAGE, PARTS, Json, data_in, experiment_of, explorer_of, page_with, recipe_of, teams_of

from browser import Browser, find_browser, opened_browser
from mesax.envs.particle_climb import ParticleClimb, ParticleState, ParticleTask
from mesax.ours.records import Told

STEPS, CLOSE, MOST_BYTES = 80, 1e-5, 200_000
WISH = (0.25, 1.0, 0.0625, 0.5, 0.125)
STARTS = ((0.31, -0.12), (-0.22, 0.05))
NODE = shutil.which("node")
COMMAND = find_browser()


class SaysLogits(eqx.Module):
    """Actors whose action is how much they are for each action."""

    team: Any

    def start(self, key: jax.Array) -> Any:
        return self.team.start()

    def act(self, memory: Any, obs: jax.Array, key: jax.Array) -> tuple[jax.Array, Any]:
        memory, logits = self.team.step(memory, obs)
        return logits, memory


@pytest.fixture(scope="module")
def data() -> Json:
    return data_in()


@pytest.fixture(scope="module")
def lots() -> np.ndarray:
    return np.random.default_rng(0).gumbel(size=(STEPS, 2, 5)).astype(np.float32)


def episode(data: Json, policy: Any, memory: Any, target: int, lots: np.ndarray) -> dict[str, np.ndarray]:
    """What happens in Python, step by step."""
    env = world_of(data)
    task = ParticleTask(jnp.asarray(data["layout"], jnp.float32), jnp.asarray(target), jnp.asarray(2))
    start = ParticleState(jnp.asarray(STARTS, jnp.float32), jnp.zeros((2, 2)))

    def step(carry: Any, lots: jax.Array) -> tuple[Any, Any]:
        state, memory = carry
        logits, memory = policy.act(memory, env.observe(task, state), jax.random.key(0))
        actions = jnp.argmax(logits + lots, axis=-1)
        state, after = env.step(task, state, actions, jax.random.key(0))
        return (state, memory), {
            "logits": logits,
            "actions": actions,
            "reward": after.reward,
            "at": state.position,
        }

    return jax.device_get(jax.jit(lambda *given: jax.lax.scan(step, *given)[1])((start, memory), lots))


def world_of(data: Json) -> ParticleClimb:
    world = experiment_of(data).family.env
    assert isinstance(world, ParticleClimb)
    for name in ("num_agents", "radius", "delta", "acceleration"):
        assert data["world"][name] == getattr(world, name)
    return world


@pytest.fixture(scope="module")
def expected(data: Json, lots: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    """An explorer with wishes and lots, and a learned team that takes what it prefers."""
    told, recipe = explorer_of(data), recipe_of(data)
    policy = Told(SaysLogits(told.policy.actors.team), told.state, recipe.reward, recipe.spec)
    inner, _, memory, (obs, _, moved) = policy.start(jax.random.key(0))
    begun = (inner, jnp.asarray(WISH), memory, (obs, jnp.zeros((2, 5)), moved))
    team = SaysLogits(teams_of(data)[3].actors)
    return {
        "explorer": episode(data, policy, begun, 1, lots),
        "learned": episode(data, team, team.start(jax.random.key(0)), 3, np.zeros_like(lots)),
    }


def given(lots: np.ndarray) -> dict[str, Json]:
    """The same for the page."""
    starts = [list(start) for start in STARTS]
    return {
        "explorer": {"starts": starts, "target": 1, "wish": list(WISH), "lots": lots.tolist()},
        "learned": {"starts": starts, "target": 3, "lots": np.zeros_like(lots).tolist()},
    }


def compare(found: list[Json], expected: dict[str, np.ndarray]) -> None:
    assert len(found) == STEPS
    assert [row["actions"] for row in found] == expected["actions"].tolist()
    assert [row["reward"] for row in found] == expected["reward"].tolist()
    np.testing.assert_allclose([row["at"] for row in found], expected["at"], atol=CLOSE, rtol=0)
    chances = chances_of(np.array([row["logits"] for row in found]))
    np.testing.assert_allclose(chances, chances_of(expected["logits"]), atol=CLOSE, rtol=0)


def chances_of(logits: np.ndarray) -> np.ndarray:
    """Of each action: Python's logits have float32's seven digits, and the largest of them has two before the point."""
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


def test_the_page_is_what_its_parts_say(data: Json):
    text = PAGE.read_text(encoding="utf-8")
    assert page_with(data) == text, "stale: python tools/play_page.py"
    assert len(text.encode()) <= MOST_BYTES


def test_explorer_and_team_earn_what_the_page_says_they_do(expected: dict[str, dict[str, np.ndarray]]):
    """The explorer's visits pay at times, the learned team stays on the target, rounded weights or not."""
    assert 0 < np.sum(expected["explorer"]["reward"] == 1.0) < STEPS // 2
    assert np.mean(expected["learned"]["reward"][20:] == 1.0) > 0.9


@pytest.mark.skipif(NODE is None, reason="there is no Node.js")
@pytest.mark.parametrize("who", ["explorer", "learned"])
def test_the_script_computes_what_python_computes(
    who: str, data: Json, lots: np.ndarray, expected: dict[str, dict[str, np.ndarray]]
):
    script = f"""
    const {{ World, replay }} = require({json.dumps(str(PARTS / "world.js"))});
    const {{ data, given }} = JSON.parse(require("fs").readFileSync(0, "utf-8"));
    const full = {{ ...data, weights: World.weights(data.explorer), learned: data.learned.map(World.weights) }};
    process.stdout.write(JSON.stringify(replay(full, given)));
    """
    words = json.dumps({"data": data, "given": given(lots)[who]})
    assert NODE
    result = subprocess.run([NODE, "-e", script], input=words, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    compare(json.loads(result.stdout), expected[who])


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if COMMAND is None:
        pytest.skip("there is no Chromium; $MESAX_BROWSER names one")
    with opened_browser(COMMAND) as opened:
        yield opened


def text_of(browser: Browser, selector: str) -> str:
    return str(browser.js(f"document.querySelector({json.dumps(selector)}).textContent"))


@pytest.mark.parametrize("who", ["explorer", "learned"])
def test_a_browser_computes_what_python_computes(
    browser: Browser, who: str, lots: np.ndarray, expected: dict[str, dict[str, np.ndarray]]
):
    browser.open(PAGE)
    compare(browser.js(f"replay(data, {json.dumps(given(lots)[who])})"), expected[who])
    assert browser.complaints() == [] and browser.requests() == []


@pytest.mark.parametrize("width", [390, 1300])
@pytest.mark.parametrize("dark", [False, True])
def test_it_fits(browser: Browser, width: int, dark: bool, tmp_path: Path):
    browser.open(PAGE, width=width, dark=dark)
    browser.wait_for("page.world.time > 3")
    assert browser.js("document.documentElement.scrollWidth") <= width
    ink = browser.js("getComputedStyle(document.body).color")
    assert ink == ("rgb(232, 235, 239)" if dark else "rgb(27, 31, 36)")
    small = "[...document.querySelectorAll('button')].filter((one) => one.getBoundingClientRect().height < 43).length"
    assert browser.js(small) == 0, "what is touched is as large as a finger"
    assert browser.complaints() == []


def test_a_frame_leaves_time_for_sixty_a_second(browser: Browser):
    """A frame with a step in it, which is what costs: three of them in a row, the quickest counts."""
    browser.open(PAGE)
    cost = "(() => { const begun = performance.now(); advance(); paint(); return performance.now() - begun; })()"
    for _ in range(20):
        browser.js(cost)
    assert min(browser.js(cost) for _ in range(20)) < 1000 / 60


def test_guessing_hiding_and_who_plays(browser: Browser):
    browser.open(PAGE)
    browser.js("page.paused = true")
    wrong = browser.js("(page.target + 1) % 5") + 1
    browser.click(f".landmarks button:nth-child({wrong})")
    assert text_of(browser, "[data-verdict]").startswith(f"Not landmark {wrong}.")
    browser.click(f".landmarks button:nth-child({browser.js('page.target') + 1})")
    assert text_of(browser, "[data-verdict]").startswith("Right")
    before = browser.js("page.target")
    browser.click("[data-do=hide]")
    assert browser.js("page.target") != before and not browser.js("page.found")
    browser.click("[data-player=learned]")
    assert text_of(browser, "[data-told]").startswith("This team has learned")
    browser.js("for (let step = 0; step < 75; step++) advance()")
    assert browser.js("page.pays.filter((pay) => pay === 1).length") > 50
    assert browser.complaints() == []


def test_landmarks_move_by_touch_and_by_key_and_come_back(browser: Browser, data: Json):
    browser.open(PAGE, width=390)
    x, y = browser.place(".landmarks button")
    touch = {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]}
    browser.call("Input.dispatchTouchEvent", **touch)
    for far in (20, 40, 60):
        browser.call("Input.dispatchTouchEvent", type="touchMove", touchPoints=[{"x": x + far, "y": y}])
    browser.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    moved = browser.js("page.landmarks[0][0]")
    unit = browser.js("2 * HALF_VIEW / canvas.clientWidth")
    assert moved == pytest.approx(data["layout"][0][0] + 60 * unit, abs=0.02)
    assert browser.js("page.found") is False, "a drag is no guess"
    browser.js("document.querySelector('.landmarks button').focus()")
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key="ArrowUp", code="ArrowUp", windowsVirtualKeyCode=38)
    assert browser.js("page.landmarks[0][1]") == pytest.approx(data["layout"][0][1] + 0.03, abs=1e-6)
    apart = """Math.min(...page.landmarks.flatMap((one, first) => page.landmarks.slice(first + 1).map((other) =>
        Math.hypot(one[0] - other[0], one[1] - other[1]))))"""
    assert browser.js(apart) >= 2 * data["world"]["radius"] - 1e-3, "none lies on another"
    browser.click("[data-do=reset]")
    assert browser.js("page.landmarks") == data["layout"]
    assert browser.complaints() == []


def test_the_animation_shows_the_same_nets(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.argv", ["three_panels.py", "--check"])
    assert three_panels.main() == 0, capsys.readouterr().out
