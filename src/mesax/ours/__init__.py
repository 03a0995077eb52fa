"""What goes beyond the paper: parts that wrap the seams of its method."""
