"""The code contains the texts that docs/troubleshooting.md quotes."""

import ast
import re
from pathlib import Path

import pytest

from klamm.wire.errors import ErrorCode

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
SYMPTOMS = re.findall(r"^\| (.+?) \| .+ \|$", PAGE, re.MULTILINE)
QUOTED = sorted({quote for cell in SYMPTOMS for quote in re.findall(r"`(?![-\d.]+`)([^`]+)`", cell)})
OF_CLIENTS = {"auto.offset.reset", "latest", "throttle-time", "127.0.0.1"}
"""Texts of clients."""


def spoken():
    """Return the strings of the code. `…` replaces `%s` and the fields of f-strings."""
    for folder in ("core", "plugins", "spark"):
        for path in (ROOT / folder).rglob("*.py"):
            if "messages" not in path.parts:
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                    if isinstance(node, ast.Constant) and isinstance(node.value, str):
                        yield re.sub(r"%[sdgr]", "…", node.value)


SPOKEN = "\n".join(spoken())


@pytest.mark.parametrize("quote", QUOTED)
def test_a_symptom_is_a_text_in_the_code(quote):
    if quote not in OF_CLIENTS:
        assert quote.removesuffix("…").strip() in SPOKEN


def test_errors_are_kafkas():
    named = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+){2,}\b", PAGE))
    assert named
    assert named <= set(ErrorCode.__members__)
