"""The climb games."""
