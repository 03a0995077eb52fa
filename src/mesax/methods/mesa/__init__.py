"""MESA: meta-learned exploration around any off-policy learner."""
