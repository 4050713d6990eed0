"""The tests and workloads that docs/promises.md names exist."""

import ast
import re
from pathlib import Path

import pytest

from tests.interop.histories import planted
from tests.unit.testing import planted_groups, planted_machine, planted_restarts

ROOT = Path(__file__).resolve().parents[3]
ROW = re.compile(r"^\| (?P<promise>[^|]+) \| (?P<test>[^|]+) \|$", re.MULTILINE)
HEAD = ("promise", "---")
WORKLOAD = re.compile(
    r"^\| (?P<promise>[^|]+) \| `(?P<path>[^|]+)::(?P<name>\w+)` \| (?P<anomalies>[^|]+) \| (?P<faults>[^|]*)\|$",
    re.MULTILINE,
)
ALLOWED = "write_cycle"
"""The anomaly that Kafka allows."""
NAMES = re.compile(r"`(\w+)`")
FAULTS = {
    fault.__name__: found
    for module in (planted, planted_groups, planted_restarts, planted_machine)
    for fault, found in module.FAULTS.items()
}


def rows() -> list[tuple[str, str]]:
    found = ROW.findall((ROOT / "docs" / "promises.md").read_text("utf-8"))
    return [(promise, test) for promise, test in found if promise not in HEAD]


@pytest.mark.parametrize(("promise", "test"), rows())
def test_a_promise_has_a_test(promise: str, test: str) -> None:
    path, _, name = test.strip("`").partition("::")
    module = ast.parse((ROOT / "tests" / path).read_text("utf-8"))
    names = {node.name for node in module.body if isinstance(node, ast.FunctionDef)}
    assert name in {each for each in names if each.startswith("test_")}, promise


def test_no_promise_occurs_twice() -> None:
    assert len({promise for promise, _test in rows()}) == len(rows()) > 80


def workloads() -> list[re.Match[str]]:
    return list(WORKLOAD.finditer((ROOT / "docs" / "promises.md").read_text("utf-8")))


@pytest.mark.parametrize("row", workloads(), ids=lambda row: row["promise"])
def test_a_promise_has_a_workload_that_would_break_it(row: re.Match[str]) -> None:
    module = ast.parse((ROOT / "tests" / row["path"]).read_text("utf-8"))
    names = {node.name for node in module.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    assert row["name"] in names
    for fault in NAMES.findall(row["faults"]):
        assert FAULTS[fault] & set(NAMES.findall(row["anomalies"])), fault


def test_each_anomaly_and_each_planted_fault_belongs_to_a_promise() -> None:
    page = (ROOT / "docs" / "histories.md").read_text("utf-8").partition("## The anomalies")[2].partition("\n## ")[0]
    first_cells = [line.split(" | ")[0] for line in page.splitlines() if line.startswith("| `")]
    anomalies = set(NAMES.findall(" ".join(first_cells)))
    assert set(NAMES.findall(" ".join(row["anomalies"] for row in workloads()))) == anomalies - {ALLOWED}
    assert set(NAMES.findall(" ".join(row["faults"] for row in workloads()))) == set(FAULTS)
