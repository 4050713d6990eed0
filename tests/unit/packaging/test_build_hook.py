"""mypyc compiles some code to something else without an error. These tests find such code in compiled modules."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


def load_hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_hook", ROOT / "scripts" / "build_hook.py")
    assert spec is not None
    assert spec.loader is not None
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    return hook


MODULES: tuple[str, ...] = load_hook().MODULES
# A compiled subclass of another base, e.g. `threading.local`, does not know its memory layout, and overwrites it.
SAFE_BASES = {"Exception", "NamedTuple", "Protocol", "IntEnum", "enum.Enum"}


def classes_of(source: str) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef))


COMPILED_CLASSES = {one.name for module in MODULES for one in classes_of((ROOT / module).read_text())}


def problems(source: str, compiled: set[str]) -> list[str]:
    """Return code of a module that would behave differently when compiled."""
    found = []
    for one in classes_of(source):
        bases = {ast.unparse(base) for base in one.bases}
        found += [f"{one.name} has the base {base}" for base in sorted(bases - SAFE_BASES - compiled)]
        if bases & (SAFE_BASES - {"Protocol"}):
            continue
        for part in one.body:
            if isinstance(part, ast.FunctionDef) and part.name == "__getattr__":
                found.append(f"{one.name} has __getattr__, which a compiled attribute does not ask")
            if isinstance(part, ast.AnnAssign) and part.value is not None and not is_simple(part.annotation):
                found.append(f"{one.name} has a default for {ast.unparse(part.target)}, which would be missing")
    for function in functions_of(source):
        caught: dict[str, set[str]] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.ExceptHandler) and node.name is not None and node.type is not None:
                caught.setdefault(node.name, set()).add(ast.unparse(node.type))
        found += [
            f"{function.name} has errors of several kinds as {name}, and would take those of the first alone"
            for name, kinds in caught.items()
            if len(kinds) > 1
        ]
    return found


def functions_of(source: str) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))


def is_simple(annotation: ast.expr) -> bool:
    """Return True if an annotation is not a union, except of None and a name that is not an alias of a union."""
    names = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
    return not isinstance(annotation, ast.BinOp) or names <= {"ErrorCounts", "RequestOutcome", "Callable", "Any", "int"}


@pytest.mark.parametrize("module", MODULES)
def test_compiled_modules_have_no_code_that_would_behave_differently(module: str) -> None:
    assert problems((ROOT / module).read_text(), COMPILED_CLASSES) == []


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("class A(threading.local): x = 1", "A has the base threading.local"),
        ("class A:\n def __getattr__(self, name): pass", "A has __getattr__, which a compiled attribute does not ask"),
        ("class A:\n x: Result | None = None", "A has a default for x, which would be missing"),
        (
            "def f():\n try: g()\n except A as e: h(e)\n except B as e: i(e)",
            "f has errors of several kinds as e, and would take those of the first alone",
        ),
    ],
)
def test_the_check_finds_code_that_would_behave_differently(source: str, problem: str) -> None:
    assert problems(source, set()) == [problem]


@pytest.mark.parametrize(
    "source",
    [
        "class A(Exception): pass",
        "class A(B):\n x: int | None = None",
        "x = 1",
        "def f():\n try: g()\n except A as e: h(e)",
    ],
)
def test_the_check_accepts_code_that_behaves_the_same(source: str) -> None:
    assert problems(source, {"B"}) == []


def test_the_listed_modules_exist_and_are_listed_once() -> None:
    assert [module for module in MODULES if not (ROOT / module).is_file()] == []
    assert list(MODULES) == sorted(set(MODULES))
