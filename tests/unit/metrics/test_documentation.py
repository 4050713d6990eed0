"""docs/metrics.md names every metric, and none that is not there."""

import re
from pathlib import Path

from klamm_metrics.names import exposed_name
from tests.unit.metrics.all_metrics import registered

PAGE = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `([^`]+:type=[^`]+)` \| `([^`]+)` \| (\w+) \|", re.MULTILINE)


def test_the_table_has_every_metric_and_no_other():
    rows = {name: (exposed, kind) for name, exposed, kind in ROW.findall(PAGE.read_text(encoding="utf-8"))}
    assert rows == {name: (exposed_name(name, kind), kind) for name, kind in registered().items()}
