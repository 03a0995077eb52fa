"""`mesax.mesa` is the paper's method: short enough to be read beside it, and nothing that goes beyond it."""

import re
from pathlib import Path

import mesax.mesa

HERE = Path(mesax.mesa.__file__).parent
MOST_LINES = 500
OURS = (
    *("wish", "record", "demand", "told", "transfer", "snapshot", "percentile", "borrow", "latent", "leak", "picture"),
    *("repeat", "spread", "mesax.ours", "mesax.baselines"),
)


def test_it_is_short():
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in HERE.glob("**/*.py"))
    assert lines <= MOST_LINES


def test_it_has_nothing_of_ours():
    for path in HERE.glob("**/*.py"):
        found = re.findall("|".join(OURS), path.read_text(encoding="utf-8"), re.IGNORECASE)
        assert not found, f"{path.name}: {', '.join(found)}"
