"""The particle worlds."""
