"""Checks what `make dist` has built: the wheel and the source archive hold all they should, and the wheel works.

    python tools/check_dist.py dist                             what they hold, against this source tree
    python tools/check_dist.py dist --run                       and the wheel's smoke run, in a clean environment
    python tools/check_dist.py dist --run --pythons 3.12 PATH   the same for other Pythons, by version or by path
    python tools/check_dist.py dist --run --pythons all         for every Python at hand that is new enough

A clean environment has nothing but the wheel and what it asks for, and is removed afterwards. Needs the standard
library only; 1 if something is wrong, with a line for each.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEAST = (3, 11)
NEEDED_BY_TESTS = ("src", "paper", "tests", "benchmarks", "examples", "tools", "docs", "results", ".ci")
SMOKE = (
    ("mesax", "run", "mesa", "climb-one", "--preset", "smoke", "--workers", "2", "--quiet", "--out", "run"),
    ("mesax", "verify", "run"),
    ("mesax", "report", "run"),
    ("mesax", "eval", "run"),
    ("mesax", "render", "run"),
)
"""The smoke run, in worker processes; then all its files, the page, which is made of files that are no code, and verbs
that rebuild the run."""
COMPILE_LITTLE = "--xla_backend_optimization_level=0"
"""Nearly all of a smoke run is compiling."""
TELLS = "import jax, sys; print('{}.{}.{}'.format(*sys.version_info), jax.__version__)"


def files_below(folder: Path) -> set[str]:
    """Every file of a folder by its path, without what Python leaves behind."""
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix() for path in found if path.suffix not in (".pyc", ".pyo")}


def wheel_problems(wheel: Path, root: Path = ROOT) -> Iterator[str]:
    """What the wheel lacks or has too much of, such as `paper/`, and where its metadata differ from pyproject.toml."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        inside = {name for name in names if ".dist-info/" not in name}
        wanted = {f"mesax/{name}" for name in files_below(root / "src" / "mesax")}
        yield from (f"{wheel.name} lacks {name}" for name in sorted(wanted - inside))
        yield from (f"{wheel.name} has {name}, which is no file of the package" for name in sorted(inside - wanted))
        about = {name.partition(".dist-info/")[2]: name for name in names - inside}
        for needed in ("METADATA", "RECORD", "entry_points.txt", "licenses/LICENSE"):
            if needed not in about:
                yield f"{wheel.name} lacks {needed}"
                return
        metadata = Parser().parsestr(archive.read(about["METADATA"]).decode())
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras, listed = set(project["optional-dependencies"]), set(metadata.get_all("Provides-Extra", []))
    if extras != listed:
        yield f"{wheel.name} offers the extras {sorted(listed)}, not {sorted(extras)}"
    if metadata["Requires-Python"] != project["requires-python"]:
        yield f"{wheel.name} needs Python {metadata['Requires-Python']}, not {project['requires-python']}"


def archive_problems(archive: Path, root: Path = ROOT) -> Iterator[str]:
    """What the source archive lacks of what `make test` needs."""
    with tarfile.open(archive) as opened:
        inside = {member.name.partition("/")[2] for member in opened.getmembers() if member.isfile()}
    wanted = {f"{folder}/{name}" for folder in NEEDED_BY_TESTS for name in files_below(root / folder)}
    wanted |= {path.name for path in root.iterdir() if path.is_file() and not path.name.startswith(".")}
    yield from (f"{archive.name} lacks {name}" for name in sorted(wanted - inside))


def only(folder: Path, pattern: str) -> Path:
    """The one file of a folder that fits."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise SystemExit(f"{folder} must hold one {pattern}, and has {len(found)}: run `make dist`")
    return found[0]


def pythons_at_hand() -> dict[tuple[int, ...], str]:
    """Every Python that is new enough, on the path or among pyenv's, by its version."""
    places = [Path(place) for place in os.environ.get("PATH", "").split(os.pathsep) if place]
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates = [path for place in places for path in place.glob("python3.*")] + [*root.glob("versions/*/bin/python3")]
    named = [path for path in candidates if re.fullmatch(r"python3(\.\d+)?", path.name)]
    return dict(sorted((version, str(path)) for path in reversed(named) if (version := version_of(str(path))) >= LEAST))


def version_of(python: str) -> tuple[int, ...]:
    """Of an interpreter; nothing if it does not answer."""
    command = [python, "-c", "import sys; print(*sys.version_info[:3])"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(map(int, told.split()))


def chosen(wishes: Iterable[str]) -> list[str]:
    """Interpreters by path, by version, or all."""
    found: list[str] = []
    for wish in wishes:
        if wish == "all":
            found += pythons_at_hand().values()
        elif re.fullmatch(r"3\.\d+(\.\d+)?", wish):
            numbers = tuple(map(int, wish.split(".")))
            fits = [path for version, path in pythons_at_hand().items() if version[: len(numbers)] == numbers]
            found += fits[-1:] or [f"python{wish}"]
        else:
            found.append(wish)
    return found


def clean_environment(folder: Path, binaries: Path) -> dict[str, str]:
    """Nothing of this source tree, and a cache of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MESAX", "VIRTUAL"))}
    return kept | {
        "PATH": f"{binaries}{os.pathsep}{kept.get('PATH', '')}",
        "MESAX_CACHE_DIR": str(folder / "cache"),
        "XLA_FLAGS": COMPILE_LITTLE,
    }


def trial(python: str, wheel: Path, constraints: Path) -> str:
    """Install the wheel for a Python, run it, and say how that went; a problem is a `RuntimeError`."""
    with tempfile.TemporaryDirectory(prefix="mesax-wheel-") as temporary:
        folder = Path(temporary)
        binaries = folder / "env" / "bin"
        environment = clean_environment(folder, binaries)
        done([python, "-m", "venv", str(folder / "env")], folder, environment)
        install = ["python", "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
        done([*install, "-c", str(constraints), str(wheel)], folder, environment)
        version, jax = done(["python", "-c", TELLS], folder, environment).split()
        started = time.perf_counter()
        for command in SMOKE:
            done(list(command), folder, environment)
        seconds = time.perf_counter() - started
        return (
            f"ok    Python {version}, jax {jax}: installed; smoke run, verify, report, eval, render in {seconds:.0f} s"
        )


def done(command: list[str], folder: Path, environment: Mapping[str, str]) -> str:
    """Its output, or its last line as a `RuntimeError`."""
    program = shutil.which(command[0], path=environment["PATH"]) or command[0]
    try:
        ended = subprocess.run(
            [program, *command[1:]], cwd=folder, env=dict(environment), capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise RuntimeError(f"{command[0]} cannot be started: {error.strerror}") from error
    if ended.returncode != 0:
        last = (ended.stderr.strip() or ended.stdout.strip()).rpartition("\n")[2]
        raise RuntimeError(f"`{' '.join(command[:4])} ...` ended with code {ended.returncode}: {last}")
    return ended.stdout


def main() -> int:
    """Check what is asked for; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", action="store_true", help="install the wheel and run it")
    parser.add_argument("--pythons", nargs="+", default=[sys.executable], metavar="PYTHON")
    options = parser.parse_args()
    wheel, archive = (only(options.folder.resolve(), pattern) for pattern in ("*.whl", "*.tar.gz"))
    problems = [*wheel_problems(wheel), *archive_problems(archive)]
    print(*(f"fail  {problem}" for problem in problems), sep="\n", end="\n" if problems else "")
    if not problems:
        print(f"ok    {wheel.name} and {archive.name} hold all they should")
    failed = bool(problems)
    for python in chosen(options.pythons) if options.run else []:
        try:
            print(trial(python, wheel, ROOT / "constraints.txt"), flush=True)
        except RuntimeError as error:
            failed = True
            print(f"fail  {python}: {error}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
