"""mesax: cooperative meta-exploration (MESA) for multi-agent reinforcement learning, on JAX."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mesax.explorers.foreign_loop import EpisodeMixer, Explorers, load_explorers

__version__ = "0.1.0"
__all__ = ["EpisodeMixer", "Explorers", "__version__", "load_explorers"]


def __getattr__(name: str) -> Any:
    """What needs JAX is imported when it is asked for: the command line must answer `--help` at once."""
    if name in __all__:
        from mesax.explorers import foreign_loop  # noqa: PLC0415

        return getattr(foreign_loop, name)
    raise AttributeError(f"module 'mesax' has no attribute {name!r}")
