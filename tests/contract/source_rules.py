"""Functions that read Python source: its imports, circles of imports, and the size of each piece of code.

`test_import_rules.py`, `test_import_circles.py`, `test_sizes.py` and `scripts/sizes` use them.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]

HARD_LIMITS = {
    "lines of a file": 1000,
    "lines of a class": 500,
    "lines of a function": 100,
    "methods of a class": 40,
    "parameters of a constructor": 12,
}
"""Above a limit, a piece must be split; `test_sizes.py` checks that. Reviewers judge the others: `scripts/sizes`."""

Graph = Mapping[str, frozenset[str]]


def imports(source: str, package: str = "") -> list[tuple[int, str, str | None]]:
    """Return (line, module, name) for every import.

    `import a.b` has no name. Relative imports are resolved in `package`.
    """
    found: list[tuple[int, str, str | None]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                module = ".".join([*above, *([module] if module else [])])
            found += [(node.lineno, module, alias.name) for alias in node.names]
    return found


def import_graph(folder: Path) -> Graph:
    """Return for each module of the package in `folder` the modules of the same package that it imports.

    Every import counts, also one in a function's body and one for type annotations alone.
    """
    modules: dict[str, tuple[Path, str]] = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder.parent).with_suffix("").parts
        package = ".".join(parts[:-1])
        modules[package if path.name == "__init__.py" else ".".join(parts)] = (path, package)
    graph = {}
    for name, (path, package) in modules.items():
        targets = set()
        for _line, module, imported in imports(path.read_text(encoding="utf-8"), package):
            submodule = f"{module}.{imported}"
            targets.add(submodule if submodule in modules else module)
        graph[name] = frozenset((targets & modules.keys()) - {name})
    return graph


def circles(graph: Graph) -> list[frozenset[str]]:
    """Return the circles of imports: in such a set each module imports every other, directly or through others.

    These are the strongly connected components with more than one module, by Tarjan's algorithm.
    """
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[frozenset[str]] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        stack.append(module)
        for target in sorted(graph[module]):
            if target not in order:
                visit(target)
                lowest[module] = min(lowest[module], lowest[target])
            elif target in stack:
                lowest[module] = min(lowest[module], order[target])
        if lowest[module] == order[module]:
            start = stack.index(module)
            if len(stack) - start > 1:
                found.append(frozenset(stack[start:]))
            del stack[start:]

    for module in graph:
        if module not in order:
            visit(module)
    return found


def upward_imports(graph: Graph, layers: Collection[Collection[str]]) -> list[str]:
    """Return `A -> B` for each module A that imports a module B of a higher layer.

    `layers` go from the lowest to the highest. Each layer is a set of modules and packages. A module belongs to the
    layer that has the longest fitting name. Raises ValueError for a module without a layer.
    """
    heights = {name: height for height, layer in enumerate(layers) for name in layer}

    def height_of(module: str) -> int:
        name = module
        while name not in heights:
            name, _, _ = name.rpartition(".")
            if not name:
                raise ValueError(f"{module} belongs to no layer")
        return heights[name]

    return [
        f"{module} -> {target}"
        for module in sorted(graph)
        for target in sorted(graph[module])
        if height_of(target) > height_of(module)
    ]


class Piece(NamedTuple):
    """A file, class, function or constructor, with its size."""

    kind: str
    name: str
    size: int


def pieces(path: Path, name: str) -> Iterator[Piece]:
    """Measure the file with this name, and all classes, functions and constructors in it."""
    source = path.read_text(encoding="utf-8")
    yield Piece("lines of a file", name, len(source.splitlines()))
    yield from _pieces_in(ast.parse(source), name)


def _pieces_in(parent: ast.AST, name: str) -> Iterator[Piece]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.ClassDef):
            inner = f"{name}::{node.name}"
            yield Piece("lines of a class", inner, _length(node))
            methods = sum(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body)
            yield Piece("methods of a class", inner, methods)
            yield from _pieces_in(node, inner)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = f"{name}::{node.name}"
            yield Piece("lines of a function", inner, _length(node))
            if node.name == "__init__":
                count = len([*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]) - 1
                yield Piece("parameters of a constructor", inner, count)
            yield from _pieces_in(node, inner)
        else:
            yield from _pieces_in(node, name)


def _length(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1
