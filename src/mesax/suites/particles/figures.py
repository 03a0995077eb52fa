"""Figures of particle worlds: at which landmarks uniform play and the explorers meet."""

from mesax.suites.visits import visits_in_a_row

FIGURES = (visits_in_a_row("landmark at which {count} of {num_agents} agents are together", "landmarks"),)
