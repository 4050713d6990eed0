"""docs/a-request.md names real files and functions, in at most 15 hops for each request."""

import ast
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "a-request.md").read_text(encoding="utf-8")
HOPS = re.findall(r"^\| (\d+) \| ([PH]) \| \[(\S+)\]\((\S+)\) `([\w.]+)` \|", PAGE, re.MULTILINE)


def functions(path):
    """Qualified names of all functions of a file."""
    found = set()

    def walk(node, above):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                name = f"{above}{child.name}"
                if not isinstance(child, ast.ClassDef):
                    found.add(name)
                walk(child, f"{name}.")

    walk(ast.parse(path.read_text(encoding="utf-8")), "")
    return found


@pytest.mark.parametrize(("number", "thread", "name", "path", "function"), HOPS)
def test_a_hop_is_a_function_of_its_file(number, thread, name, path, function):
    file = (DOCS / path).resolve()
    assert file.name == name
    assert function in functions(file)


def test_each_request_takes_at_most_fifteen_hops():
    produce, fetch = PAGE.split("## A Fetch")
    assert re.findall(r"^\| (\d+) \|", produce, re.MULTILINE) == [str(number) for number in range(1, 13)]
    assert re.findall(r"^\| (\d+) \|", fetch, re.MULTILINE) == [str(number) for number in range(7, 16)]
    assert len(HOPS) == 12 + 9
