"""Budgets, rollouts, the loop of every learner, evaluation, and the driver that runs them."""
