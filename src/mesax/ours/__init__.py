"""What goes beyond the paper: structured explorers, a learned reward, explorers elsewhere, how well they cover."""
