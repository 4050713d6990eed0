"""Counts the small changes of the code that the unit tests notice: `python tools/mutants.py [AREA...]`.

Each mutant is one change: another comparison, condition, number or constant. The tests of its area run on a copy of the
tree, so that the tree may be edited meanwhile. A mutant survives if no test fails. Some survivors are equal to the
original; the others lack a test. `--seed` draws the sample, so that a run can be repeated.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
BROKER: Final = "plugins/apis/klamm_broker"


class Area(NamedTuple):
    """Modules, as patterns of paths below the project, and the tests for these modules."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


AREAS: Final = {
    "wire": Area(
        tuple(
            f"core/klamm/wire/{name}.py" for name in ("batch_headers", "headers", "primitives", "records", "scratch")
        ),
        (
            *(
                f"tests/unit/wire/test_{name}.py"
                for name in (
                    "batch_headers",
                    "headers",
                    "varints",
                    "records",
                    "scratch",
                    "strings",
                    "element_limit",
                    "round_trips",
                )
            ),
            *(f"tests/unit/log/test_{name}.py" for name in ("record_check", "append_and_read")),
        ),
    ),
    "groups": Area((f"{BROKER}/groups/*.py", f"{BROKER}/groups/*/*.py"), ("tests/unit/groups",)),
    "transactions": Area(
        (f"{BROKER}/transactions/*.py",), ("tests/unit/transactions", "tests/unit/broker/test_state_limits.py")
    ),
    "log": Area((f"{BROKER}/log/*.py",), ("tests/unit/log",)),
    "acl": Area(
        ("plugins/authorizers/klamm_authorizers/*.py",), ("tests/unit/authorizers", "tests/unit/broker/test_acls.py")
    ),
}
_COMPARISONS: Final = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_BINARY: Final = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult}


class Mutant(NamedTuple):
    """A change of the text between two offsets."""

    line: int
    start: int
    end: int
    before: str
    after: str

    def applied(self, source: str) -> str:
        """Return the source with the change."""
        return source[: self.start] + self.after + source[self.end :]


def mutants(source: str) -> Iterator[Mutant]:
    """Yield all mutants of the code in a module's functions. Messages for logs and errors do not change."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    raw = source.encode()
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            for statement in function.body:
                for node in _expressions(statement):
                    after = _changed(node)
                    if after is not None and node.end_lineno is not None and node.end_col_offset is not None:
                        start = len(raw[: starts[node.lineno - 1] + node.col_offset].decode())
                        end = len(raw[: starts[node.end_lineno - 1] + node.end_col_offset].decode())
                        yield Mutant(node.lineno, start, end, source[start:end], f"({after})")


def _expressions(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions in a statement, but not those in nested functions, annotations, f-strings and raises."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.JoinedStr, ast.Raise, ast.Assert)) or _is_log(node):
        return
    if isinstance(node, ast.expr):
        yield node
    for name, value in ast.iter_fields(node):
        if name != "annotation":
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _expressions(child)


def _is_log(node: ast.AST) -> bool:
    function = node.func if isinstance(node, ast.Call) else None
    return isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "log"


def _changed(node: ast.expr) -> str | None:
    """Return the text of a changed expression, or None if this kind of expression is not changed."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return ast.unparse(ast.Compare(node.left, [_COMPARISONS[type(node.ops[0])]()], node.comparators))
    if isinstance(node, ast.BoolOp):
        return ast.unparse(ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return ast.unparse(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return ast.unparse(ast.BinOp(node.left, _BINARY[type(node.op)](), node.right))
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return str(not node.value)
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return str(node.value + 1)
    return None


def nearest_first(tree: Path, tests: tuple[str, ...], module: Path) -> list[str]:
    """Return the test files: first those that name the module, then those with words of its path in their names."""
    files = [file for each in tests for file in (sorted((tree / each).rglob("test_*.py")) or [tree / each])]
    dotted = ".".join(module.with_suffix("").parts[-3:])
    words = {word.rstrip("s") for part in module.with_suffix("").parts for word in part.split("_")}

    def distance(file: Path) -> tuple[bool, int]:
        named = {word.rstrip("s") for word in file.stem.split("_")}
        return dotted not in file.read_text(encoding="utf-8"), -len(words & named)

    return [str(file.relative_to(tree)) for file in sorted(files, key=distance)]


def run_tests(tree: Path, tests: Sequence[str], timeout_s: float) -> bool:
    """Return True if the tests pass on a tree, within this processor time and twenty times this time on the clock."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = [str(tree / folder) for folder in project["tool"]["hatch"]["build"]["dev-mode-dirs"]]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders), "PYTHONDONTWRITEBYTECODE": "1"}
    limit = f"import os, resource; resource.setrlimit(resource.RLIMIT_CPU, ({timeout_s:.0f},) * 2); os.execv"
    command = [sys.executable, "-c", f"{limit}({command[0]!r}, {command!r})"]
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, timeout=20 * timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def main() -> None:
    """Print the survivors of each area, and its score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("areas", nargs="*", default=list(AREAS), choices=list(AREAS), metavar="AREA")
    parser.add_argument("--count", type=int, default=12, help="mutants of each area")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--timeout", type=float, default=300.0, help="seconds of processor time that the tests of an area may take"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "klamm"
        left_out = shutil.ignore_patterns(".venv*", ".*_cache", ".git", "__pycache__", "*.pyc", "*.so")
        shutil.copytree(ROOT, tree, ignore=left_out)
        for name in options.areas:
            area = AREAS[name]
            if not run_tests(tree, area.tests, options.timeout):
                print(f"{name}: its tests fail as it is")
                continue
            rng = random.Random(options.seed)
            found = [
                (path, mutant)
                for pattern in area.modules
                for path in sorted(tree.glob(pattern))
                for mutant in mutants(path.read_text(encoding="utf-8"))
            ]
            sample = rng.sample(found, min(options.count, len(found)))
            killed = 0
            for path, mutant in sample:
                source = path.read_text(encoding="utf-8")
                path.write_text(mutant.applied(source), encoding="utf-8")
                survives = run_tests(tree, nearest_first(tree, area.tests, path.relative_to(tree)), options.timeout)
                path.write_text(source, encoding="utf-8")
                killed += not survives
                if survives:
                    where = f"{path.relative_to(tree)}:{mutant.line}"
                    print(f"survived: {where}: {mutant.before!r} -> {mutant.after}", flush=True)
            score = f"{killed} of {len(sample)} killed, {killed / (len(sample) or 1):.0%}"
            print(f"{name}: {score} (seed {options.seed}, {date.today()})", flush=True)


if __name__ == "__main__":
    main()
