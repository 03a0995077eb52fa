"""How large the report of a whole table is, how long it takes to write, and how soon a browser shows it.

The runs are made up (7 environments x 10 methods x 3 seeds), so that only the report is measured:

    python benchmarks/report.py [--seeds 3] [--keep DIRECTORY]
    python benchmarks/report.py --page docs/examples/quickstart-report.html      a page that is there already
"""

import argparse
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from browser import find_browser, opened_browser
from fake_store import FakeRun, write_episodes, write_run
from mesax.formatting import format_bytes
from mesax.results.report import write_report

ENVIRONMENTS = ("climb-one", "climb-multi-mixed", "wide-2a5l", "wide-2a6l", "wide-3a5l", "wide-3a6l", "swimmer-wide")
METHODS = ("mesa", "plain", "uniform", "maddpg", "qmix", "maven", "emc", "mappo", "mappo-rnd", "maesn")


def write_table(root: Path, seeds: int, environments: tuple[str, ...] = ENVIRONMENTS) -> Path:
    """All runs of the table, with recorded episodes."""
    for env, method, seed in product(environments, METHODS, range(seeds)):
        stages = 5 if env == "climb-multi-mixed" else 1
        fake = FakeRun(method, env, seed=seed, num_tasks=10, num_stages=stages, evaluations=60, num_explorers=2)
        policies = ("final", "explorer-1", "explorer-2", "uniform") if method == "mesa" else ("final", "uniform")
        write_episodes(write_run(root / f"{method}-{env}-quick-seed{seed}", fake), policies, tasks=10)
    return root


def first_paint(page: Path) -> tuple[float, float]:
    """Milliseconds until a browser has painted something, and until all has been read."""
    command = find_browser()
    if command is None:
        raise SystemExit("no browser was found: install chromium, or name one in $MESAX_BROWSER")
    with opened_browser(command) as browser:
        browser.open(page)
        browser.wait_for("performance.getEntriesByName('first-contentful-paint').length")
        painted = browser.js("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        loaded = browser.js("performance.getEntriesByType('navigation')[0].loadEventEnd")
        assert browser.complaints() == [] and browser.requests() == []
        return float(painted), float(loaded)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="where to leave the runs and the page")
    parser.add_argument("--runs", type=Path, nargs="*", help="measure the report of these runs instead")
    parser.add_argument("--page", type=Path, help="measure this page instead; nothing is written")
    options = parser.parse_args()
    if options.page is not None:
        painted, loaded = first_paint(options.page)
        print(f"size {format_bytes(options.page.stat().st_size)}")
        print(f"first paint after {painted:.0f} ms, loaded after {loaded:.0f} ms")
        return
    with tempfile.TemporaryDirectory() as temporary:
        root = options.keep or Path(temporary)
        runs = options.runs or [write_table(root, options.seeds)]
        clock = time.process_time()
        page = write_report(runs, root / "report.html")
        seconds, size = time.process_time() - clock, page.stat().st_size
        painted, loaded = first_paint(page)
    print(f"size {format_bytes(size)}, written in {seconds:.1f} CPU-seconds")
    print(f"first paint after {painted:.0f} ms, loaded after {loaded:.0f} ms")


if __name__ == "__main__":
    main()
