"""What runs say: statistics, comparisons, tables, figures, reports."""
