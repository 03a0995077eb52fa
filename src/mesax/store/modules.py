"""A user's modules: loaded when they are named on the command line or in code, never because a file names them.

Needs no JAX.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

from mesax.errors import StoreError, UsageError, closest
from mesax.runtime import staying
from mesax.store.settings import Named, foreign_modules, module_of, name_of, script_name, script_path

SHOWN_NAMES = 12
EXTRAS = {"gymnasium": "envs", "pettingzoo": "envs", "jaxmarl": "jaxmarl", "mujoco": "mujoco"}
"""Libraries that users' modules import, and the extra that installs each."""
_loading: list[str] = []
"""What is being loaded at this moment, outermost first."""


def current_directory() -> Path:
    """Where modules are looked for first; it may have been removed."""
    try:
        return Path.cwd()
    except OSError as error:
        raise StoreError("the current directory is gone: start from another one") from error


def is_reference(text: str) -> bool:
    """Whether a name on the command line is `module:attribute`."""
    return ":" in text


def refuse_references(*names: str | None) -> None:
    """Names that come from a file go through here first: nothing is imported because a file names it."""
    for name in names:
        if name is not None and is_reference(name):
            raise UsageError(f"'{name}' is of a user's own module, and no file can have that loaded")


def file_name(name: str) -> str:
    """A name for a directory or a file: some systems do not allow a colon there."""
    return name.replace(":", ".")


def split_reference(text: str) -> tuple[str, str]:
    """Module and attribute of `module:attribute`."""
    module, colon, attribute = text.partition(":")
    if not colon or not module or not attribute:
        raise UsageError(f"name it as MODULE:ATTRIBUTE, such as my_env:make, not '{text}'")
    if module.endswith(".py"):
        raise UsageError(f"'{module}' is a file: name the module, {_proper(module, text[len(module) :])}")
    _refuse_path(module, text[len(module) :])
    return module, attribute


def _refuse_path(name: str, attribute: str = "") -> None:
    """Refuse a path, or a name that begins with a dot, where that of a module is meant."""
    if "/" in name or name.startswith("."):
        raise UsageError(f"'{name}' is a path: name the module, {_proper(name, attribute)}")


def _proper(name: str, attribute: str) -> str:
    """How to name what is in a file: below the current directory as it is, elsewhere from its own directory."""
    path = Path(name if "/" in name else name.lstrip("."))
    absolute, here = Path(os.path.abspath(path)), current_directory()  # not resolved: a link's own name can be imported
    if absolute.is_relative_to(here) and absolute != here:
        return f"{'.'.join(absolute.relative_to(here).with_suffix('').parts)}{attribute}"
    return f"{absolute.stem or 'my_env'}{attribute}, in the directory {absolute.parent}"


def attribute_of(text: str) -> object:
    """What `module:attribute` stands for; modules are looked for in the current directory first."""
    module, path = split_reference(text)
    found: object = load_module(module)
    for name in path.split("."):
        if not hasattr(found, name):
            near = closest(name, dir(found))
            meant = f"did you mean {' or '.join(near)}? it" if near else "it"
            raise UsageError(f"module '{module}' has no '{path}'; {meant} has {_offered(module)}")
        found = getattr(found, name)
    return found


def _offered(module: str) -> str:
    """Some of a module's names."""
    values = vars(sys.modules[module])
    names = [name for name, value in values.items() if not name.startswith("_") and not isinstance(value, ModuleType)]
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + more or "nothing"


def load_modules(names: Iterable[str]) -> tuple[ModuleType, ...]:
    """The modules of these names; a name that ends in .py is the path of a script."""
    return tuple(load_module(name) for name in names)


def load_module(name: str) -> ModuleType:
    """One module, or a script under the name that it could be imported by; whatever goes wrong is one line."""
    if not name.endswith(".py"):
        _refuse_path(name)
    _search_here()
    _loading.append(name)
    try:
        with staying():
            return _script(Path(name)) if name.endswith(".py") else importlib.import_module(name)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"module '{name}' cannot be imported: {text}{_cure(name, error)}") from error
    finally:
        _loading.pop()


def _cure(name: str, error: BaseException) -> str:
    """How to install what a user's module could not import, or where a module was looked for in vain."""
    missing = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
    if missing in EXTRAS:
        return f" (pip install 'mesax[{EXTRAS[missing]}]')"
    if missing and (name == missing or name.startswith(f"{missing}.")):
        return f" (looked for in {current_directory()}, then on Python's search path)"
    return ""


def refuse_while_loading(what: str) -> None:
    """What a script does must not happen again when a module of that script is merely loaded."""
    if _loading:
        raise UsageError(
            f"{what} while '{_loading[-1]}' is being loaded:"
            ' put what the script does under if __name__ == "__main__":'
        )


def _search_here() -> None:
    here = str(current_directory())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)


def _script(path: Path) -> ModuleType:
    """A script as a module; not as `__main__`, so that it only defines what it has."""
    loaded = sys.modules.get(path.stem)
    if loaded is not None:
        if Path(loaded.__file__ or "").resolve() != path.resolve():
            raise UsageError(f"the script {path} is called like the module '{path.stem}', which is loaded: rename it")
        return loaded
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UsageError(f"there is no script {path}")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))  # as Python does for a script
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
    return module


def named_in(module: ModuleType) -> dict[str, Named]:
    """Classes and functions that a module, or a package with those of its parts that are loaded, defines itself.

    By the names that files use; what it imports from elsewhere is not among them.
    """
    home = script_name() if module.__name__ == "__main__" else module.__name__
    found: dict[str, Named] = {}
    inner = [sys.modules[name] for name in sorted(sys.modules) if name.startswith(f"{home}.")]
    for named in (named for part in (module, *inner) for named in _members(part)):
        where = module_of(named)
        if where == home or where.startswith(f"{home}."):
            found.setdefault(name_of(named), named)
    return found


def _members(module: ModuleType) -> Iterator[Named]:
    for value in vars(module).values():
        if inspect.isfunction(value):
            yield value
        elif isinstance(value, type):
            yield value
            yield from _parts(value)


def _parts(kind: type) -> Iterator[Named]:
    """Classes and static functions within a class."""
    for value in vars(kind).values():
        if isinstance(value, type):
            yield value
        elif isinstance(value, staticmethod) and inspect.isfunction(value.__func__):
            yield value.__func__


def how_to_load(value: object) -> tuple[str, ...]:
    """What to give `--load` so that all classes and functions among the settings are there: modules, or the script."""
    script = script_path() if sys.modules["__main__"].__spec__ is None else None
    return tuple(
        _from_here(script) if script is not None and module == script_name() else module
        for module in foreign_modules(value)
    )


def _from_here(path: Path) -> str:
    """A path as short as it can be said in the current directory."""
    here = current_directory()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def loaded_modules(value: object) -> tuple[ModuleType, ...]:
    """The modules of the classes and functions among the settings, as they are in this process."""
    names = ("__main__" if name == script_name() else name for name in foreign_modules(value))
    return tuple(sys.modules[name] for name in names if name in sys.modules)


def search_path() -> Sequence[str]:
    """Where this process looks for modules, for another process to look there too."""
    return [entry or str(current_directory()) for entry in sys.path]
