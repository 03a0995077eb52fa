"""Worlds of proof games (see `paper.games`)."""
