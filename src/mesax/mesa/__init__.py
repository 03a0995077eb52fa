"""MESA, the paper's method: meta-learned exploration around any off-policy learner."""
