"""Verbs that study the paper: `theory`."""

from __future__ import annotations

import argparse
import json


def theory(options: argparse.Namespace) -> int:
    """Check the paper's lemmas and theorems, and draw what they say."""
    from mesax.results.safe_drawing import attempt
    from mesax.results.tables import print_table
    from mesax.results.theory import slips_text, tables, write_theory
    from mesax.theory.study import study

    document = study()
    for table in tables(document):
        print_table(table)
        print()
    print(slips_text(document), end="\n\n")
    for path in attempt("of the theory", lambda: write_theory(document, options.out)) or []:
        print(f"written  {path}")
    if options.json:
        print(json.dumps(document, ensure_ascii=False))
    return 0
