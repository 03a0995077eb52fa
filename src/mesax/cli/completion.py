"""`mesax completion SHELL`: a script made of the parser and the names, which asks nothing when it is used."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Mapping

from mesax.cli.parser import actions_of
from mesax.cli.verbs import verbs
from mesax.experiments.names import ENVIRONMENTS, LEARNERS, METHODS, PRESETS

NAMES: Mapping[str, Iterable[str]] = {
    "method": METHODS,
    "methods": METHODS,
    "env": ENVIRONMENTS,
    "envs": ENVIRONMENTS,
    "preset": PRESETS,
    "learner": LEARNERS,
}
"""What an argument may be, by the name under which its value is kept."""


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
    print(_script(options.shell), end="")
    return 0


def _script(shell: str) -> str:
    """The script of one shell."""
    if shell == "fish":
        return "\n".join(_fish()) + "\n"
    before = "autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    return before + "\n".join(_bash()) + "\n"


def _values(action: argparse.Action) -> list[str]:
    """All values of an argument, if these are known."""
    return list(map(str, action.choices or NAMES.get(action.dest, ())))


def _bash() -> Iterable[str]:
    yield "_mesax() {"
    yield "  local verb=${COMP_WORDS[1]} before=${COMP_WORDS[COMP_CWORD-1]} words="
    yield '  case "$verb $before" in'
    for verb in verbs():
        for action in actions_of(verb):
            if action.option_strings and _values(action):
                yield f'    "{verb} {action.option_strings[-1]}") words="{" ".join(_values(action))}";;'
    yield '    *) case "$verb $COMP_CWORD" in'
    yield f'      *" 1") words="{" ".join(verbs())}";;'
    for verb in verbs():
        places = [action for action in actions_of(verb) if not action.option_strings]
        for number, action in enumerate(places, start=2):
            if _values(action):
                yield f'      "{verb} {number}") words="{" ".join(_values(action))}";;'
        yield f'      "{verb} "*) words="{" ".join(_options(verb))}";;'
    yield "    esac;;"
    yield "  esac"
    yield '  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))'
    yield "}"
    yield "complete -o default -F _mesax mesax"


def _options(verb: str) -> list[str]:
    return [action.option_strings[-1] for action in actions_of(verb) if action.option_strings]


def _fish() -> Iterable[str]:
    for verb, (_, text) in verbs().items():
        yield f"complete -c mesax -n __fish_use_subcommand -a {verb} -d {shlex.quote(text)}"
        for action in actions_of(verb):
            known = f" -xa {shlex.quote(' '.join(_values(action)))}" if _values(action) else ""
            name = f" -l {action.option_strings[-1].lstrip('-')}" if action.option_strings else ""
            if name or known:
                yield f"complete -c mesax -n '__fish_seen_subcommand_from {verb}'{name}{known}"
