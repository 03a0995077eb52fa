"""Verbs that only this repository needs: the paper's figures and theorems, and the results that its pages quote."""

VERBS = {
    "theory": "the paper's lemmas and theorems, checked exactly; tables and a picture",
    "reproduce": "figures and tables of the paper from stored results, or what is missing for them; --run runs that",
    "verify": "check every file of a run against its checksum; or a store of results, and the pages that quote it",
}
"""A line about each."""
