"""docs/metrics.md names exactly the existing metrics with their labels."""

import re
from pathlib import Path

from klamm_metrics.collector import exposed_name
from tests.unit.metrics.all_metrics import labels, registered

PAGE = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `([^`]+:type=[^`]+)` \| `([^`]+)` \| (\w+) \|([^|]*)\|", re.MULTILINE)


def rows():
    return ROW.findall(PAGE.read_text(encoding="utf-8"))


def documented_labels(cell):
    """Return the sets of labels. `— for all; topic` stands for two kinds of samples, one of them without labels."""
    kinds = (re.sub("— for all", "", kind) for kind in cell.split(";"))
    return {frozenset(label.strip() for label in kind.split(",") if label.strip()) for kind in kinds}


def test_the_table_has_exactly_the_existing_metrics():
    documented = {name: (exposed, kind) for name, exposed, kind, _ in rows()}
    assert documented == {name: (exposed_name(name, kind), kind) for name, kind in registered().items()}


def test_the_table_has_the_labels_of_every_metric():
    assert {name: documented_labels(cell) for name, _, _, cell in rows()} == labels()
