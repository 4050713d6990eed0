"""Tests of regular expressions of clients: allowed syntax, and limits for their time."""

import contextlib
import sys
import time

import pytest

from klamm.shared import compile_re2
from tests.faults.cost_meter import machine_factor

BUDGET_MS = 50
"""Maximum time of a frame on a network thread; see tests/faults/test_cost.py."""
LONGEST = 32_767
COSTLY = {
    "classes": r"\pL" * (LONGEST // 3),
    "classes, as many as may be": r"\pL" * 100 + "|a" * 15_000,
    "negated classes": r"[^\pL\pN\pP\pS]" * 2_000,
    "classes of any case": r"(?i:\PL)" * 100,
    "a repeated class": r"(\pL{900})+",
    "repetitions": "(a{2,1000})" * (LONGEST // 11),
    "repetitions, as many as may be": "(a{2,1000})" * 100,
    "any characters": "." * LONGEST,
    "ranges of any case": "(?i:[\u0100-\uffff])" * 2_400,
    "groups": "(ab|ac)" * (LONGEST // 7),
}


@pytest.mark.parametrize("pattern", COSTLY.values(), ids=COSTLY)
def test_no_expression_takes_long_to_compile(pattern):
    """The interpreter is locked meanwhile, so no other thread runs."""
    assert len(pattern.encode()) <= LONGEST
    took_ms = []
    for _ in range(3):
        began_ns = time.thread_time_ns()
        with contextlib.suppress(ValueError):
            compile_re2(pattern)
        took_ms.append((time.thread_time_ns() - began_ns) / 1e6)
    assert min(took_ms) < BUDGET_MS * max(1.0, machine_factor())


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r"orders-.*", "orders-eu", True),
        (r"^[\pL\pN_.-]{1,20}-(dev|prod)$", "ä-dev", True),
        ("|".join(f"topic-number-{number}" for number in range(1_800)), "topic-number-1799", True),
        (r"(a|b){1,100}", "ab" * 60, False),
    ],
)
def test_usual_expressions_match_whole_texts(pattern, text, matches):
    assert (compile_re2(pattern).fullmatch(text) is not None) == matches


@pytest.mark.parametrize("pattern", ["(", "a{1001}", r"(?=a)", r"\pL" * 101, "a{2}" * 101])
def test_a_refused_pattern_has_a_reason(pattern):
    with pytest.raises(ValueError, match=r"\w"):
        compile_re2(pattern)


def test_without_re2_the_error_says_what_to_install(monkeypatch):
    """Some systems have no wheel of re2."""
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(ValueError, match=r"google-re2 \(the extra `regex` of klamm\) is not installed"):
        compile_re2("a")
