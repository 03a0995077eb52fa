"""The report in a real browser: it draws, answers to hovering, clicking and scrubbing, fits a phone, loads nothing."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from browser import Browser, find_browser, opened_browser
from fake_store import SMALL, seal, write_episodes, write_run
from mesax.results.report import write_report
from mesax.store.json_values import signed

COMMAND = find_browser()
pytestmark = pytest.mark.skipif(COMMAND is None, reason="there is no Chromium; $MESAX_BROWSER names one")
ATTACK = "<img src=x onerror=\"document.title='owned'\"></script><script>document.title='owned'</script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert COMMAND
    with opened_browser(COMMAND) as opened:
        yield opened


def with_targets(path: Path) -> Path:
    """Explorers whose visits were counted target by target."""
    coverage = json.loads((path / "coverage.json").read_text())
    for number, visitor in enumerate(coverage["visitors"]):
        worst = {"task": 1, "target": 7, "steps": 0.04 + number, "chance": 0.02, "stay": 1.0}
        tables = {
            "steps": [[4.0, 2.0], [3.0, worst["steps"]]],
            "chance": [[1, 0.5], [1, 0.02]],
            "stay": [[3, 2], [2, 1]],
        }
        visitor["targets"] = {"worst": worst, "mean_steps": 2.0, "pairs": 4, "numbers": [3, 7], **tables}
    (path / "coverage.json").write_text(json.dumps(coverage))
    return seal(path)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("runs")
    fakes = {"mesa": SMALL, "plain": replace(SMALL, method="plain"), "attack": replace(SMALL, label_prefix=ATTACK)}
    runs = {name: write_episodes(write_run(root / name, fake)) for name, fake in fakes.items()}
    with_targets(runs["mesa"])
    return runs


@pytest.fixture(scope="module")
def page(store: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([store["mesa"], store["plain"]], tmp_path_factory.mktemp("page") / "report.html")


def chips(browser: Browser) -> list[str]:
    return browser.js("[...document.querySelectorAll('[data-curves] > .legend .chip')].map((chip) => chip.textContent)")


def lines(browser: Browser) -> int:
    return browser.js("document.querySelectorAll('[data-curves] .line').length")


def test_curves_are_drawn_and_methods_can_be_hidden(browser: Browser, page: Path):
    browser.open(page)
    browser.place("[data-curves] .line")
    assert chips(browser) == ["MESA", "learner alone"] and lines(browser) == 2
    browser.click("[data-curves] > .legend .chip")
    assert lines(browser) == 1
    assert browser.js("document.querySelector('[data-curves] .chip').getAttribute('aria-pressed')") == "false"
    browser.click("[data-curves] > .legend .chip")
    assert lines(browser) == 2
    assert browser.complaints() == [] and browser.requests() == []


def test_hovering_reads_the_values_at_a_step(browser: Browser, page: Path):
    browser.open(page)
    browser.hover("[data-curves] .picture", 0.999, 0.4)
    told = browser.wait_for("document.querySelector('.tip').hidden ? '' : document.querySelector('.tip').innerText")
    assert told.startswith("step 12k"), "the last evaluation"
    assert "MESA" in told and "1.00" in told and "learner alone" in told
    browser.hover("h1")
    assert browser.js("document.querySelector('.tip').hidden")
    browser.js("document.querySelector('[data-curves] .picture').focus()")
    for _ in range(2):
        browser.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowRight")
    assert browser.js("document.querySelector('.tip b').textContent") == "step 2k", "the second evaluation"


def test_views_can_be_switched(browser: Browser, page: Path):
    browser.open(page)
    browser.place("[data-curves] .line")

    def path() -> str:
        return browser.js("document.querySelector('[data-curves] [data-method=\"1\"] .line').getAttribute('d')")

    mean = path()
    browser.click("#controls [aria-label=Statistic] button:last-child")
    assert path() != mean, "half of plain's tasks are solved: the middle half differs from all on the way"
    assert browser.js("getComputedStyle(document.querySelector('.card .of-mean')).display") == "none"
    browser.click("#controls [aria-label=Statistic] button:first-child")
    assert path() == mean
    assert browser.js("document.querySelectorAll('[data-curves] .single').length") == 8, "four task runs each"
    browser.click("#controls .lone")
    assert browser.js("document.querySelectorAll('[data-curves] .single').length") == 0
    browser.click("#controls .lone")
    assert browser.js("document.querySelectorAll('[data-curves] .ending').length") == 2, "an interval for each method"
    browser.hover("[data-curves] .reference")  # at the optimum
    assert ": 1.00" in browser.wait_for("document.querySelector('.tip .near')?.textContent ?? ''")
    browser.click("[data-curves] [aria-label=Tasks] button:last-child")
    assert browser.js("document.querySelectorAll('[data-curves] .single').length") == 4, "tasks of one group"
    assert browser.complaints() == []


def test_coverage_points_out_the_target_that_is_left_out(browser: Browser, page: Path):
    browser.open(page)
    browser.place("[data-coverage] table")
    worst = "document.querySelector('[data-coverage] td.worst')"
    assert browser.js(f"{worst}.textContent") == "1.0"
    assert browser.js(f"{worst}.title") == "1.04 steps an episode, in 2% of episodes, longest stay 1.0"
    browser.click("[data-coverage] button:first-child")
    assert browser.js(f"{worst}.textContent") == "0.04"
    assert "on target 7 of task 1" in browser.js("document.querySelector('[data-coverage] .note').textContent")


def moment(browser: Browser) -> str:
    return browser.js("document.querySelector('[data-player] .now').textContent")


def test_the_player_plays_scrubs_and_changes_who_plays(browser: Browser, page: Path):
    browser.open(page)
    browser.place("[data-player] .go")
    assert moment(browser) == "episode 1 of 2 · step 0 of 20 · return 0.00 of 10.00"
    assert (
        browser.js("document.querySelectorAll('[data-player] select')[1].selectedOptions[0].textContent")
        == "explorer 1"
    )
    shot = "document.querySelector('.arena').toDataURL()"
    before = browser.js(shot)
    browser.click("[data-player] .strip", 32.5 / 42, 0.5)
    assert moment(browser) == "episode 2 of 2 · step 11 of 20 · reward 1.00 · return 1.00 of 10.00"
    assert browser.js("document.querySelector('.place.target').textContent") == "1: 1"
    assert browser.js(shot) != before
    slide = "const s = document.querySelector('[data-player] input'); s.value = 3; s.dispatchEvent(new Event('input'));"
    browser.js(f"(() => {{ {slide} }})()")
    assert moment(browser).startswith("episode 1 of 2 · step 3 of 20")
    browser.click("[data-player] .go")
    browser.wait_for("!document.querySelector('[data-player] .now').textContent.includes('step 3 ')")
    browser.click("[data-player] .go")
    assert browser.js("document.querySelector('[data-player] .go').textContent") == "▶ play"
    stopped = moment(browser)
    browser.js("new Promise((done) => setTimeout(done, 400))")
    assert moment(browser) == stopped
    choose = "s.dispatchEvent(new Event('change'))"
    browser.js(f"(() => {{ const s = document.querySelectorAll('[data-player] select')[1]; s.value = 0; {choose} }})()")
    assert (
        browser.js("document.querySelectorAll('[data-player] select')[1].selectedOptions[0].textContent")
        == "learned policy"
    )
    browser.js(f"(() => {{ const s = document.querySelectorAll('[data-player] select')[0]; s.value = 1; {choose} }})()")
    assert moment(browser).startswith("episode 1 of 2 · step 0"), "the other run"
    assert browser.complaints() == [] and browser.requests() == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_phone_shows_all_of_it_in_either_light(browser: Browser, page: Path, dark: bool):
    browser.open(page, width=360, height=740, dark=dark)
    for part in ("curves", "finals", "coverage", "player"):
        browser.place(f"[data-{part}]")
        browser.wait_for(f"document.querySelector('[data-{part}]').dataset.drawn")
    assert browser.js("document.documentElement.scrollWidth") <= 360, "nothing sticks out"
    shade = browser.js("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/)[0]")
    assert (int(shade) < 80) == dark
    for wanted in ("light", "dark"):
        browser.click("#controls > button:last-child")
        shade = browser.js("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/)[0]")
        assert (int(shade) < 80) == (wanted == "dark")
    assert browser.complaints() == []


def test_markup_in_names_is_shown_as_text(browser: Browser, store: dict[str, Path], tmp_path: Path):
    source = tmp_path / "attack"
    shutil.copytree(store["attack"], source)
    run, recorded = (json.loads((source / f"{name}.json").read_text()) for name in ("run", "episodes"))
    run |= {"method": ATTACK, "env": ATTACK, "preset": ATTACK}
    recorded["stages"][0] |= {"about": ATTACK, "curvesTitle": ATTACK}
    recorded["stages"][0]["shapes"][1]["label"] = ATTACK
    recorded["plays"] = [play | {"policy": ATTACK} for play in recorded["plays"]]
    (source / "run.json").write_text(json.dumps(run))
    (source / "episodes.json").write_text(json.dumps(signed(recorded)))
    seal(source)
    browser.open(write_report([source], tmp_path / "report.html"))
    browser.place("[data-player] .go")
    browser.hover("[data-curves] .picture", 0.5, 0.2)
    browser.wait_for("!document.querySelector('.tip').hidden")
    assert ATTACK in browser.js("document.querySelector('.tip').textContent")
    assert ATTACK in browser.js("document.querySelector('[data-player] .note').textContent")
    assert ATTACK in browser.js("document.querySelector('[data-player] select').textContent")
    assert browser.js("document.title").startswith(f"mesax: {ATTACK}"), "nobody has changed it"
    assert browser.js("document.querySelectorAll('img[onerror]').length") == 0
    assert browser.complaints() == [] and browser.requests() == []


def test_without_scripts_there_are_pictures(browser: Browser, page: Path):
    browser.open(page, scripts=False)
    tree = browser.call("DOMSnapshot.captureSnapshot", computedStyles=[])
    assert sum(text == "IMG" for text in tree["strings"]) == 1
    names = [tree["strings"][index] for index in tree["documents"][0]["nodes"]["nodeName"]]
    assert names.count("IMG") == 4, "curves, final returns, coverage, training"
    assert browser.complaints() == [] and browser.requests() == []


def test_a_table_of_runs_leads_to_every_cell(browser: Browser, tmp_path: Path):
    for env in ("climb-one", "climb-multi-mixed"):
        for method in ("mesa", "plain"):
            for seed in (0, 1, 2):
                fake = replace(SMALL, method=method, env=env, seed=seed)
                write_run(tmp_path / f"{method}-{env}-{seed}", fake)
    (tmp_path / "mesa-climb-one-1" / "report.html").write_text("its own")
    write_run(tmp_path / "late", replace(SMALL, seed=5))
    (tmp_path / "late" / "eval.jsonl").unlink()
    (tmp_path / "late" / "checksums.json").unlink()
    (tmp_path / "late" / "STATUS").write_text("running\n")
    browser.open(write_report([tmp_path], tmp_path / "report.html"))
    table = "[...document.querySelectorAll('table.cells tbody tr')].map((row) => row.cells[0].textContent)"
    assert browser.js(table) == ["MESA", "learner alone"], "MESA first"
    targets = browser.js("[...document.querySelectorAll('table.cells td a')].map((link) => link.getAttribute('href'))")
    assert len(targets) == 4 and len(set(targets)) == 4
    for target in targets:
        assert "task runs" in browser.js(f"document.querySelector('{target}').textContent")
    links = browser.js("[...document.querySelectorAll('section.run > p a')].map((link) => link.getAttribute('href'))")
    assert links == ["mesa-climb-one-1/report.html"]
    assert "late has no evaluations of test tasks yet" in browser.js("document.body.innerText")
    browser.click("table.cells td a")
    browser.wait_for("location.hash.startsWith('#cell-')")
    assert browser.complaints() == [] and browser.requests() == []
