"""Results of benchmarks are dated files that name machine and command. docs/performance.md is one page about them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "bench" / "results"
PAGE = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
FILES = sorted(path for path in RESULTS.glob("*.md") if path.name != "README.md")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_result_has_a_date_a_machine_and_a_place_in_the_list(file):
    assert re.match(r"20\d\d-\d\d-\d\d-[a-z-]+$", file.stem)
    assert "\nMachine: " in file.read_text(encoding="utf-8")
    assert f"]({file.name}) | {file.name[:10]} |" in (RESULTS / "README.md").read_text(encoding="utf-8")


def test_the_page_has_five_results_and_their_commands():
    rows = re.findall(r"^\| \*\*.*\|$", PAGE, re.MULTILINE)
    assert len(rows) == 5
    modules = [re.findall(r"`python -m (bench\.\w+)", row) for row in rows]
    assert all(modules)
    assert [one for of_row in modules for one in of_row if not (ROOT / f"{one.replace('.', '/')}.py").exists()] == []


def test_the_page_is_short_and_names_what_is_slow():
    assert len(PAGE.splitlines()) <= 60, "what was measured goes to bench/results"
    assert PAGE.partition("## Weaknesses")[2].count("\n- **") >= 3
