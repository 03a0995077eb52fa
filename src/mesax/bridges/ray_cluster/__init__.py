"""Jobs on a Ray cluster: the same jobs, done by Ray's workers on whatever machines it has."""
