"""The house stays as drawn: layers, the one place that compiles, what nobody imports, what is documented."""

import ast
import importlib
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "mesax"
PAPER = ROOT / "paper"
MODULES = [*sorted(PACKAGE.rglob("*.py")), *sorted(PAPER.rglob("*.py"))]
COMPILERS = {"jit", "filter_jit", "pmap", "filter_pmap"}
UNPICKLERS = {"pickle", "cloudpickle", "dill", "shelve", "marshal"}
# What works on stored results must open at once.
WITHOUT_JAX = [
    "mesax",
    *(f"mesax.cli.{name}" for name in ("parser", "looking", "listing", "arguments", "verbs.run")),
    "paper.cli.reproduce",
    "paper.cli.theorems",
    *(f"mesax.results.{name}" for name in ("intervals", "curves", "summary", "comparison", "drawing", "report")),
    "paper.theory.shown",
    "paper.theory.study",
    *(f"mesax.store.{name}" for name in ("reading", "run_directory", "modules", "settings")),
    "mesax.execution.sweep",
    "mesax.execution.status",
    "mesax.rendering.recorded",
    "mesax.rendering.scene",
    "mesax.bridges.tracking.follow",
    "mesax.experiments.names",
    "mesax.experiments.provenance",
    "mesax.suites.registry",
]
TEXT_SUFFIXES = {".py", ".md", ".toml", ".yml", ".txt", ".cff", ".json", ".jsonl", ""}


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE if path.is_relative_to(PACKAGE) else ROOT).as_posix()


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imports_of(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Every import as (module, name); the name is empty for `import module`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


def test_import_contracts_hold():
    command = "from importlinter.cli import lint_imports_command; lint_imports_command(['--no-cache'])"
    result = python(command)
    assert result.returncode == 0, result.stdout + result.stderr


def test_mesa_imports_only_the_base_of_algorithms():
    path = PACKAGE / "mesa" / "method.py"
    imported = {
        f"{module}.{name}" if module == "mesax.algorithms" else module
        for module, name in imports_of(tree_of(path))
        if module.startswith("mesax.algorithms")
    }
    assert imported <= {"mesax.algorithms.base"}


MOST_FILES, MOST_ANY = 14, 120
LOOKS_INSIDE = {"hasattr", "signature", "getfullargspec"}
ASKS_STRANGERS = ("suites/", "bridges/environments/", "envs/contract.py", "store/settings.py", "store/modules.py")
"""These hold objects that mesax did not make: what they are shows in what they offer."""


def looks_inside(tree: ast.Module) -> set[str]:
    """Calls that ask an object what it has; what an operating system has is another matter."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [
        node for node in calls if not (node.args and isinstance(node.args[0], ast.Name) and node.args[0].id == "os")
    ]
    return LOOKS_INSIDE & {ast.unparse(node.func).rpartition(".")[2] for node in named}


def test_contracts_are_not_guessed():
    mine = [path for path in MODULES if not name_of(path).startswith(ASKS_STRANGERS)]
    assert [(name_of(path), found) for path in mine if (found := looks_inside(tree_of(path)))] == []


def test_nothing_outside_suites_asks_which_world_it_is():
    """Neither by its class nor by its name; the paper's own tables and figures are lists of names."""
    question = re.compile(r"isinstance\([\w.]*family,|[\"'](?:(?:climb|mpe|swimmer|particles)\b|wide-)")
    mine = [path for path in MODULES if not name_of(path).startswith(("suites/", "envs/", "paper/"))]
    assert [name_of(path) for path in mine if question.search(path.read_text(encoding="utf-8"))] == []


def test_rooms_are_small():
    places = [place for root in (PACKAGE, PAPER) for place in (root, *root.rglob("*/"))]
    counts = {name_of(place): len([*place.glob("*.py")]) for place in places}
    assert {name: count for name, count in counts.items() if count > MOST_FILES} == {}


def names_any(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Name) and part.id == "Any" for part in ast.walk(node))


def is_protocol(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(base) for base in node.bases)


def test_few_types_are_left_open_and_none_in_a_contract():
    assert sum(len(re.findall(r"\bAny\b", path.read_text(encoding="utf-8"))) for path in MODULES) <= MOST_ANY
    contracts = [(path, node) for path in MODULES for node in ast.walk(tree_of(path)) if is_protocol(node)]
    assert contracts and [(name_of(path), node.name) for path, node in contracts if names_any(node)] == []


def test_every_module_has_a_docstring():
    assert [name_of(path) for path in MODULES if not ast.get_docstring(tree_of(path))] == []


def compiles(tree: ast.Module) -> bool:
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names = {name for module, name in imports_of(tree) if module.split(".")[0] in {"jax", "equinox"}}
    return bool(COMPILERS & (attributes | names))


def test_only_one_file_compiles():
    assert [name_of(path) for path in MODULES if compiles(tree_of(path))] == ["compiling.py"]


def unpickles(tree: ast.Module) -> bool:
    keywords = [node for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "allow_pickle"]
    allowed = [node for node in keywords if not (isinstance(node.value, ast.Constant) and node.value.value is False)]
    return bool(allowed or UNPICKLERS & {module.split(".")[0] for module, _ in imports_of(tree)})


def test_nothing_is_unpickled():
    assert [name_of(path) for path in MODULES if unpickles(tree_of(path))] == []


def test_every_deviation_is_documented():
    source = "\n".join(path.read_text(encoding="utf-8") for path in MODULES)
    assert not re.findall(r"Deviation(?!\([a-z0-9-]+\): \S)", source), "write `Deviation(slug): why`"
    tagged = set(re.findall(r"Deviation\(([a-z0-9-]+)\)", source))
    lines = (ROOT / "docs" / "deviations.md").read_text(encoding="utf-8").splitlines()
    entries = "\n".join(line for line in lines if re.match(r"\s*(#|[-*|]|\d+\.)", line))
    assert [slug for slug in sorted(tagged) if f"`{slug}`" not in entries] == []


def test_what_works_on_stored_results_needs_no_jax():
    """One process for all of them: the first that loads something heavy is named, and so is what comes after it."""
    code = f"""
import importlib, sys
for module in {WITHOUT_JAX}:
    importlib.import_module(module)
    print(*(f"{{module}} loads {{name}}" for name in ("jax", "equinox", "sklearn") if name in sys.modules), sep="\\n")
"""
    loaded = python(code)
    assert loaded.returncode == 0, loaded.stderr
    assert loaded.stdout.strip() == ""


def text_files() -> Iterator[Path]:
    folders = [ROOT / name for name in ("src", "paper", "tests", "docs", "benchmarks", "examples", ".ci")]
    found = [path for folder in folders for path in folder.rglob("*")] + list(ROOT.iterdir())
    return (path for path in found if path.is_file() and path.suffix in TEXT_SUFFIXES and path.name != ".git")


def test_no_path_of_a_machine():
    pattern = re.compile(r"(?<![\w.~$}-])/(?:root|home|Users|work|opt|mnt)/[\w.]")
    guilty = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in text_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if pattern.search(line)
    ]
    assert guilty == []


def test_constraints_are_names_and_versions():
    line = re.compile(r"[a-z0-9-]+==[0-9][\w.]*( ; [a-z_]+ (?:<|>=|==|!=) '[\w.]+')?")
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [text for text in lines if not line.fullmatch(text)] == []


def test_scripts_find_what_they_import():
    """Benchmarks are seldom run, so a name that has moved would stay unnoticed until somebody types the command."""
    missing = []
    for path in [path for folder in ("benchmarks", "tools") for path in sorted((ROOT / folder).glob("*.py"))]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "mesax":
                missing += [f"{path.name}: {node.module}.{one.name}" for one in node.names if not is_there(node, one)]
    assert missing == []


def is_there(node: ast.ImportFrom, alias: ast.alias) -> bool:
    module = importlib.import_module(str(node.module))
    if hasattr(module, alias.name):
        return True
    return hasattr(module, "__path__") and importlib.util.find_spec(f"{module.__name__}.{alias.name}") is not None
