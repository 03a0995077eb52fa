"""mesax: cooperative meta-exploration (MESA) for multi-agent reinforcement learning, on JAX."""

__version__ = "0.1.0"
