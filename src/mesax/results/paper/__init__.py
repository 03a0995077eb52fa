"""Figures and tables that belong to this paper alone."""
