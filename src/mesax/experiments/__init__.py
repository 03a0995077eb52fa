"""Names and settings to experiments, and run.json back to them."""
