"""What a report is made of: its data, what it says of one run, its style and its script."""
