"""What is compared: MESA, its controls, and the published methods."""
