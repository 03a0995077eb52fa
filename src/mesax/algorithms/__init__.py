"""Learners: networks, losses and updates; they know no environment, reward model or loop."""
