"""`mesax env check`: what is played, what is found, and what to do about it."""
