"""Exploration policies as values: put to use, saved, carried elsewhere, played with NumPy."""
