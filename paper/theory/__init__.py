"""The paper's definition, lemmas and theorems as exact computations: NumPy and SciPy, float64, no JAX."""
