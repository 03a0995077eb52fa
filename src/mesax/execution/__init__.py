"""Doing runs: stages, jobs, worker processes, signals, progress, sweeps."""
