"""`mesax theory`: the paper's lemmas and theorems, checked exactly."""

from __future__ import annotations

import argparse
import json

from mesax.results.safe_drawing import attempt
from mesax.results.tables import print_table
from paper.theory.shown import draw_theory, slips_text, tables, write_document
from paper.theory.study import study


def theory(options: argparse.Namespace) -> int:
    """Check the paper's lemmas and theorems, and draw what they say."""
    document = study()
    for table in tables(document):
        print_table(table)
        print()
    print(slips_text(document), end="\n\n")
    written = write_document(document, options.out)
    for path in [written, *(attempt("of the theory", lambda: draw_theory(document, options.out)) or [])]:
        print(f"written  {path}")
    if options.json:
        print(json.dumps(document, ensure_ascii=False))
    return 0
