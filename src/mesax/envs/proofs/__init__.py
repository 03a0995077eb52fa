"""Worlds of proof games (see `mesax.suites.proofs`)."""
