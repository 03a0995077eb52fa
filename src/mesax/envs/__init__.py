"""Environments and the task families drawn from them."""
