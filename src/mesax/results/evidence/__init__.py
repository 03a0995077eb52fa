"""Results that are kept: one small file for each run, whether it is still up to date, and pages that quote it."""
