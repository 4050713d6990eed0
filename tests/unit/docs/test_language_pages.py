"""Programs on the pages for other languages are parts of the tests in examples/testing, which CI runs."""

import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = {
    "go": ROOT / "examples/testing/go/orders_test.go",
    "node": ROOT / "examples/testing/node/orders.test.mjs",
    "java": ROOT / "examples/testing/java/src/test/java/example/OrdersTest.java",
}
MOVED = [ROOT / "examples/testing/go-testcontainers/orders_test.go"]
"""Examples that have their own folders."""
NOT_RUN = ("@DynamicPropertySource",)
"""Beginnings of blocks that require Spring, which is not installed here."""
LINES = 10


def flat(text):
    """Return the lines without indentation, and without empty lines."""
    return "\n".join(filter(None, (line.strip() for line in textwrap.dedent(text).splitlines())))


def blocks(language):
    text = (ROOT / "docs" / "testing" / f"{language}.md").read_text(encoding="utf-8")
    return re.findall(r"^```\w+\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("language", EXAMPLES)
def test_programs_of_a_page_are_run(language):
    tests = flat(EXAMPLES[language].read_text(encoding="utf-8"))
    found = [block for block in blocks(language) if not block.startswith(NOT_RUN)]
    assert found
    assert [block for block in found if flat(block) not in tests] == []


@pytest.mark.parametrize("language", EXAMPLES)
def test_the_first_program_is_short(language):
    assert all(block.count("\n") <= LINES for block in blocks(language)[:2])


@pytest.mark.parametrize(("language", "fence"), [("go", "go"), ("node", "js"), ("java", "java")])
def test_programs_of_other_pages_are_those_of_the_examples(language, fence):
    example = EXAMPLES[language]
    files = [path for path in MOVED if path.suffix == example.suffix] + [*example.parent.glob(f"*{example.suffix}")]
    tests = "\n".join(flat(each.read_text(encoding="utf-8")) for each in files)
    start = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
    moved = (ROOT / "docs" / "migrate-testcontainers.md").read_text(encoding="utf-8")
    found = re.findall(rf"^```{fence}\n(.*?)^```", start, re.MULTILINE | re.DOTALL)
    found += re.findall(rf"^After:\n\n```{fence}\n(.*?)^```", moved, re.MULTILINE | re.DOTALL)
    assert len(found) == 2
    assert [block for block in found if flat(block) not in tests] == []
