"""`mesax completion SHELL`: a script that completes verbs, names and options."""

import argparse

from mesax.cli.telling import imported

SHELLS = {
    "bash": 'eval "$(mesax completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(mesax completion zsh)" in ~/.zshrc, after compinit',
    "fish": "mesax completion fish > ~/.config/fish/completions/mesax.fish",
}
"""How each shell gets to know it."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    parser.add_argument("shell", choices=list(SHELLS), help="; ".join(SHELLS.values()))


def main(options: argparse.Namespace) -> int:
    """Do it."""
    print(imported("mesax.cli.completion").script(options.shell), end="")
    return 0
