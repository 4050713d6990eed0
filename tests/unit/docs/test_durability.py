"""docs/durability.md promises exactly what the tests of crash states check, line by line."""

import re
from pathlib import Path

from tests.faults.crash_states.promises import ROWS_OF_COORDINATORS, ROWS_OF_RECORDS, ROWS_OF_SHARE_GROUPS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "durability.md"
ROW = re.compile(r"^\| ([^|]+) \| (survives|are available again) \| ([^|]+) \|([^|]*)\|$", re.MULTILINE)
OF_TWO_SETTINGS = ("committed offsets", "records that a share group has acknowledged, released or rejected")


def test_the_table_equals_the_checked_promises():
    rows = ROW.findall(PAGE.read_text("utf-8"))
    lines = [f"{what}, {setting.strip()}" if what in OF_TWO_SETTINGS else what for what, _, _, setting in rows]
    assert lines == [*ROWS_OF_RECORDS, *ROWS_OF_SHARE_GROUPS, *ROWS_OF_COORDINATORS]
