"""Environments of other libraries: PettingZoo, Gymnasium and JaxMARL. None of them is needed by the rest of mesax."""
