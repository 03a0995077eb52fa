"""Catalogue, runner, store, statistics, figures and report."""
