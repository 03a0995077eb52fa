"""Other libraries: their environments, Ray, trackers; each behind its extra."""
