"""Writes docs/api.md, the reference of all that `import mesax` offers, from signatures and docstrings in the source.

    python tools/api_page.py            write it
    python tools/api_page.py --check    1 if it is not what the source says

The source is read and not imported, so this needs no JAX.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import mesax

PAGE = Path(__file__).resolve().parent.parent / "docs" / "api.md"
INTRODUCTION = """# API reference

*This page is long: a reference, with an entry for each public name.*

What `import mesax` offers by name; each is imported when it is first asked for. This page is written by
`python tools/api_page.py` from the source. Everything else is an internal part that may move: the seams are described
in [Design](design.md#the-seams).

Settings are listed with their types and defaults. What each of them means, `mesax list METHOD ENV` and
`help(mesax.NAME)` say.
"""
OF_SETTINGS = ("Methods", "Budgets and schedules", "Learners", "Networks", "Rewards and features")
"""Groups whose fields can be given on the command line, which says what they mean."""
GROUPS = {
    "Running experiments": ("Experiment", "experiment", "train", "Results", "run_experiment", "OnRay", "experiment_of"),
    "Methods": (
        *(
            "Mesa",
            "SteadyMesa",
            "Borrowed",
            "LearnedMesa",
            "RewardFit",
            "StructuredMesa",
            "SharedLatent",
            "Plain",
            "Uniform",
            "Diagonal",
            "Tour",
            "TourPlan",
            "Filled",
        ),
        *("Pretrain", "Pretraining", "CBet", "Maesn", "Mixing", "Method", "Stage", "Start"),
    ),
    "Budgets and schedules": (
        *("Budget", "Schedule", "Prioritized", "Linear", "LinearSteps", "LinearOwnSteps", "Elapsed"),
    ),
    "Learners": (
        *("Learner", "OffPolicy", "OnPolicy", "Maddpg", "GumbelGradient", "ExpectedGradient", "JointImprovement"),
        *("ImmediateElites", "ValueDecomposition", "Independent", "Sum", "Monotonic", "Duplex", "StateDuplex"),
        *("Maven", "CodedValues", "Reinforce", "Emc", "Curiosity", "Falling", "BestReturns", "Mappo", "Guided"),
        *("LatentPolicyGradient", "Normalized", "Binned"),
    ),
    "Networks": (
        *("Mlp", "Gru", "WithChange", "Entities"),
        *("Adam", "RmsProp", "Trainable", "FeedForward", "unroll_batch", "polyak"),
    ),
    "Rewards and features": (
        *(
            "RewardModel",
            "ExplorersReward",
            "SubspaceReward",
            "CoverageState",
            "TaskReward",
            "CoverageReward",
            "RecordReward",
            "Rnd",
            "CountReward",
            "Threshold",
            "RelativeThreshold",
        ),
        *("LearnedRecords", "DeclaredEntities", "Block"),
        *("ObsActionFeatures", "SortedOccupancy", "JointAngles", "ProjectedKeys"),
    ),
    "Environments and tasks": (
        *(
            "Environment",
            "HostEnvironment",
            "HostBatch",
            "HostStep",
            "TaskFamily",
            "Step",
            "PlainFamily",
            "TaskInfo",
            "TaskSplit",
            "EnvSpec",
            "Discrete",
        ),
        *("Box", "ClimbFamily", "ForeignEnvironment", "JaxMarlEnvironment", "ForeignFamily", "parallel_env"),
    ),
    "Suites": ("Suite", "Preset", "NamedLearner"),
    "Policies and episodes": (
        *("Policy", "UniformPolicy", "EpsilonRandom", "Label", "Episode", "Transition", "play", "masked_mean"),
        *("tree_index",),
    ),
    "Explorers in other training loops": ("load_explorers", "Explorers", "EpisodeMixer", "Player"),
    "Learned policies elsewhere": ("load_policy", "LearnedPolicy"),
    "Errors": ("UsageError", "TrainingError", "StoreError"),
}

CALLED = {
    *("Explorers", "EpisodeMixer", "Player", "LearnedPolicy", "Trainable", "Label", "Elapsed", "Discrete", "Box"),
    *("Mlp", "Gru"),
}
"""Classes that are no protocols and whose methods users call: those that the tutorials do, and what loops hand out."""


def page() -> str:
    """The whole page."""
    listed = [name for names in GROUPS.values() for name in names]
    unlisted = sorted({*mesax.__all__} - {*listed, "__version__"})
    if unlisted or len(listed) != len(set(listed)):
        raise SystemExit(f"every public name belongs into one group of this script: {', '.join(unlisted) or 'twice'}")
    parts = [INTRODUCTION]
    for title, names in GROUPS.items():
        parts.append(f"## {title}\n")
        parts += [entry(name, brief=title in OF_SETTINGS) for name in names]
    return "\n".join(parts)


def entry(name: str, brief: bool) -> str:
    """One name: where it is, what it is, and what it takes; of settings, what they mean is left out."""
    module, node = definition(mesax._HOMES[name], name)
    where = module.removeprefix("mesax.").replace(".", "/") + ".py"
    lines = [f"### {name}\n", f"`{where}`. {text(node)}\n"]
    if isinstance(node, ast.ClassDef):
        own = [base for base in base_names(node) if base in mesax.__all__]
        if own:
            lines.append(f"Has all that `{'`, `'.join(own)}` has.\n")
        rows = [*inherited_fields(module, node), *fields(node)]
        lines += [*(field_list(rows) if brief else field_table(rows)), *methods(node)]
    else:
        lines += code([signature(node)])
    return "\n".join(lines)


def definition(module: str, name: str) -> tuple[str, ast.ClassDef | ast.FunctionDef]:
    """Where a name is defined, following imports within the package, and its definition."""
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None
    for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return module, node
        if isinstance(node, ast.ImportFrom) and any((alias.asname or alias.name) == name for alias in node.names):
            return definition(str(node.module), name)
    raise SystemExit(f"{module} does not define {name}")


def text(node: ast.AST) -> str:
    """The docstring, for markdown."""
    assert isinstance(node, ast.ClassDef | ast.FunctionDef)
    return literal((ast.get_docstring(node) or "").strip())


def literal(words: str) -> str:
    """With the stars of M_* and R* as they are: they emphasize nothing."""
    return re.sub(r"(?<=[_R])\*", r"\\*", words)


def base_names(node: ast.ClassDef) -> list[str]:
    """Its bases, without their parameters."""
    bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    return [base.id for base in bases if isinstance(base, ast.Name)]


class Field(NamedTuple):
    """What the constructor takes, or what a value holds."""

    name: str
    kind: str
    default: str
    meaning: str


def inherited_fields(module: str, node: ast.ClassDef) -> Iterator[Field]:
    """Those of bases of the same module that the page does not list, so that no field is missing from it."""
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None
    here = ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body
    for base in here:
        if isinstance(base, ast.ClassDef) and base.name in base_names(node) and base.name not in mesax.__all__:
            yield from inherited_fields(module, base)
            yield from fields(base)


def fields(node: ast.ClassDef) -> Iterator[Field]:
    """All that it defines itself."""
    for index, part in enumerate(node.body):
        if not isinstance(part, ast.AnnAssign) or not isinstance(part.target, ast.Name) or part.target.id[0] == "_":
            continue
        following = node.body[index + 1] if index + 1 < len(node.body) else None
        said = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        comment = literal(" ".join(str(following.value.value).split())) if said else ""  # type: ignore[union-attr]
        default = ast.unparse(default_of(part.value)) if part.value is not None else ""
        yield Field(part.target.id, ast.unparse(part.annotation), default, comment)


def default_of(value: ast.expr) -> ast.expr:
    """A field's default; `added` only marks a field that older files lack."""
    marked = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "added"
    return value.args[0] if marked else value  # type: ignore[attr-defined]


def field_table(found: list[Field]) -> Iterator[str]:
    """A row for each."""
    rows = []
    for field in found:
        default = f"`{field.default}`" if field.default else ""
        cells = (f"`{field.name}`", f"`{field.kind}`", default, field.meaning)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    if rows:
        yield "\n".join(["| field | type | default | meaning |", "|---|---|---|---|", *rows, ""])


def field_list(found: list[Field]) -> Iterator[str]:
    """A line for each, as in the source, and as the formatter wants it: `ast` writes single quotes and wide powers."""
    lines = [f"{field.name}: {field.kind}" + (f" = {field.default}" if field.default else "") for field in found]
    if lines:
        yield from code([line.replace("'", '"').replace(" ** ", "**") for line in lines])


def methods(node: ast.ClassDef) -> Iterator[str]:
    """Signatures of its public methods; of settings, which have fields, they are for loops and not for users."""
    protocol = any("Protocol" in ast.unparse(base) for base in node.bases)
    wanted = protocol or node.name in CALLED
    found = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name[0] != "_"]
    if wanted and found:
        yield from code([f"{signature(part)}\n    # {text(part).splitlines()[0]}" for part in found])


def signature(node: ast.AST) -> str:
    """A function's head as it would be written."""
    assert isinstance(node, ast.FunctionDef)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    if "property" in decorators:
        return f"{node.name}: {returns.removeprefix(' -> ')}"
    static = "@staticmethod\n" if "staticmethod" in decorators else ""
    arguments = re.sub(r"(?<=[\w\]])=(?=\S)", " = ", ast.unparse(node.args))
    return f"{static}def {node.name}({arguments}){returns}"


def code(lines: list[str]) -> Iterator[str]:
    """A block of code."""
    yield "\n".join(["```python", *lines, "```", ""])


def main() -> int:
    """Write or compare."""
    parser = argparse.ArgumentParser(description="The page of the API reference.")
    parser.add_argument("--check", action="store_true", help="compare only")
    if not parser.parse_args().check:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    same = PAGE.read_text(encoding="utf-8") == page()
    if not same:
        print("docs/api.md is not what the source says: run python tools/api_page.py", file=sys.stderr)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
