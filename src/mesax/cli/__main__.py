"""`python -m mesax.cli` is `mesax`."""

from mesax.cli.parser import main
from mesax.execution.leaving import leave_quickly


def command() -> int:
    """Run one verb in a process of its own."""
    ended: list[int] = []
    leave_quickly(ended)
    ended.append(main())
    return ended[0]


if __name__ == "__main__":
    raise SystemExit(command())
