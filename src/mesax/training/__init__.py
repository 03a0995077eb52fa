"""Rollouts, the off-policy loop, evaluation, and the driver that compiles them."""
