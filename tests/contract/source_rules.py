"""The source as data: who imports whom, where imports run in a circle, and how large each piece is."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60
MAX_CLASS_LINES = 300
MAX_METHODS = 25
MAX_PARAMETERS = 8

_REASON = re.compile(r"# (\d+) parameters: \S")

Graph = Mapping[str, frozenset[str]]


def imports(source: str, package: str = "") -> list[tuple[int, str, str | None]]:
    """(line, module, name) of every import; `import a.b` has no name. Relative ones are resolved against `package`."""
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
    """The modules of the package in `folder`, each with those of the package that it imports.

    Every import counts: for type annotations only, and in a function's body, too.
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
    """The strongly connected components of more than one module: in each, every module imports every other in the end.

    Tarjan's algorithm.
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
    """`A -> B` for each module A that imports a module B of a higher layer.

    `layers` go from the lowest to the highest. Each names modules and packages; the longest name that fits a module
    says where it belongs. Raises ValueError for a module that has no layer.
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


def oversized(path: Path, name: str) -> Iterator[tuple[str, str]]:
    """(what, how large) for each piece of a file that is over its limit; `name` is what to call the file."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    if len(lines) > MAX_FILE_LINES:
        yield name, f"{len(lines)} lines"
    yield from _oversized_in(ast.parse(source), name, lines)


def _oversized_in(parent: ast.AST, name: str, lines: list[str]) -> Iterator[tuple[str, str]]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.ClassDef):
            inner = f"{name}::{node.name}"
            yield from _oversized_class(node, inner)
            yield from _oversized_in(node, inner, lines)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = f"{name}::{node.name}"
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield inner, f"{length} lines"
            if node.name == "__init__":
                yield from _oversized_constructor(node, inner, lines)
            yield from _oversized_in(node, inner, lines)
        else:
            yield from _oversized_in(node, name, lines)


def _oversized_class(node: ast.ClassDef, name: str) -> Iterator[tuple[str, str]]:
    length = (node.end_lineno or node.lineno) - node.lineno + 1
    if length > MAX_CLASS_LINES:
        yield name, f"{length} lines"
    methods = sum(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body)
    if methods > MAX_METHODS:
        yield name, f"{methods} methods"


def _oversized_constructor(
    node: ast.FunctionDef | ast.AsyncFunctionDef, name: str, lines: list[str]
) -> Iterator[tuple[str, str]]:
    arguments = node.args
    count = len([*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]) - 1
    reason = _REASON.search(lines[node.lineno - 2])
    if count > MAX_PARAMETERS and (reason is None or int(reason[1]) != count):
        yield name, f"{count} parameters"
