"""Limits for the size of files, functions, classes and constructors. `scripts/sizes` lists the largest for reviewers.

The limits are far above a good size: a class of so many lines has more than one purpose. Generated messages are not
counted.
"""

import subprocess
import sys

import pytest

from tests.contract.source_rules import HARD_LIMITS, ROOT, Piece, pieces

FOLDERS = ("bench", "core", "examples", "plugins", "scripts", "spark", "tests", "tools")
GENERATED = {ROOT / "core/klamm/wire/messages", ROOT / "core/klamm/wire/coordinator_records"}


def test_no_piece_of_code_exceeds_the_limits():
    found = [
        piece
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if GENERATED.isdisjoint(path.parents)
        for piece in pieces(path, path.relative_to(ROOT).as_posix())
        if piece.size > HARD_LIMITS[piece.kind]
    ]
    assert found == [], "split it by reason"


def test_the_script_sizes_lists_the_largest_pieces_of_each_kind():
    command = [sys.executable, ROOT / "scripts" / "sizes", "core/klamm/network", "--count", "2"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert [line for line in shown.splitlines() if not line.startswith(" ")] == [
        f"{kind} (never above {limit:,})" for kind, limit in HARD_LIMITS.items()
    ]
    rows = [line.split() for line in shown.splitlines() if line.startswith(" ")]
    assert len(rows) == 2 * len(HARD_LIMITS)
    assert [int(size) for size, _name in rows[:2]] == sorted((int(size) for size, _name in rows[:2]), reverse=True)
    assert all(name.startswith("core/klamm/network/") for _size, name in rows)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("pass\n" * 7, Piece("lines of a file", "x.py", 7)),
        ("def f():\n" + "    pass\n" * 6, Piece("lines of a function", "x.py::f", 7)),
        ("if True:\n    async def f():\n        pass\n", Piece("lines of a function", "x.py::f", 2)),
        ("class C:\n" + "    pass\n" * 6, Piece("lines of a class", "x.py::C", 7)),
        ("class C:\n    x = 1\n" + "    def f(self): ...\n" * 3, Piece("methods of a class", "x.py::C", 3)),
        (
            "class C:\n    def __init__(self, a, b, *, c): ...\n",
            Piece("parameters of a constructor", "x.py::C::__init__", 3),
        ),
    ],
)
def test_pieces_measures_each_kind(tmp_path, source, expected):
    path = tmp_path / "x.py"
    path.write_text(source)
    assert expected in set(pieces(path, "x.py"))


def test_each_module_of_the_audit_belongs_to_a_part_and_a_feature():
    command = [sys.executable, ROOT / "scripts" / "sizes", "--audit"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    rows = [line.strip("| ").split(" | ") for line in shown.splitlines() if line.endswith(" |") and "---" not in line]
    counts = {name: int(last.replace(",", "")) for name, *_, last in rows if last.replace(",", "").isdecimal()}
    lines = sum(
        len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / "spark" / "klamm_spark").rglob("*.py")
    )
    parts = {"the server's writer", "tools", "pipeline", "together"}
    assert counts["together"] == lines
    assert sum(count for name, count in counts.items() if name not in parts) == lines
