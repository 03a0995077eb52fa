"""mesax: cooperative meta-exploration (MESA) for multi-agent reinforcement learning, on JAX.

All that a user needs is offered here by name, and imported when it is asked for: `import mesax` loads no JAX. These
names, and where they are defined, stand in `__init__.pyi`, a line each.
"""

from importlib import import_module

__version__ = "0.1.0"


def _homes() -> dict[str, str]:
    """The module of each public name."""
    with open(__file__.removesuffix(".py") + ".pyi", encoding="utf-8") as stub:
        lines = [line.split() for line in stub if line.startswith("from ")]
    return {name: module for _, module, _, _, _, name in lines}


_HOMES = _homes()
__all__ = ["__version__", *_HOMES]  # noqa: PLE0604


def __getattr__(name: str) -> object:
    """A public name, from the module that defines it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'mesax' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value  # asked for once
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
