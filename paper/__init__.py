"""What proves this repository, and no user of the package imports: the paper's table, figures and theorems.

In a clone `mesax.clone` finds it: its verbs are verbs of `mesax`, its games are worlds that a run can name.
"""
