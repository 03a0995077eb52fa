"""The swimmer."""
