"""docs/promises.md names tests that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ROW = re.compile(r"^\| (?P<promise>[^|]+) \| (?P<test>[^|]+) \|$", re.MULTILINE)
HEAD = ("promise", "---")


def rows() -> list[tuple[str, str]]:
    found = ROW.findall((ROOT / "docs" / "promises.md").read_text("utf-8"))
    return [(promise, test) for promise, test in found if promise not in HEAD]


@pytest.mark.parametrize(("promise", "test"), rows())
def test_a_promise_has_a_test(promise: str, test: str) -> None:
    path, _, name = test.strip("`").partition("::")
    module = ast.parse((ROOT / "tests" / path).read_text("utf-8"))
    names = {node.name for node in module.body if isinstance(node, ast.FunctionDef)}
    assert name in {each for each in names if each.startswith("test_")}, promise


def test_no_promise_stands_there_twice() -> None:
    assert len({promise for promise, _test in rows()}) == len(rows()) > 80
