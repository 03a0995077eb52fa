"""Copies what finished runs found to the store of results: figures, curves, settings with their hash, clocks.

    python benchmarks/results.py --keep runs/*        to results/, which is committed (mesax/results/evidence/kept.py)

`mesax sweep --results results` and `mesax reproduce table-2 --run` keep what they run by themselves.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from mesax.results.evidence.kept import keep

RESULTS = Path(__file__).resolve().parent.parent / "results"


def main() -> None:
    """Keep each, and print where."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", nargs="+", type=Path, metavar="RUN_DIR", required=True)
    for directory in parser.parse_args().keep:
        print(keep(directory, RESULTS))


if __name__ == "__main__":
    main()
