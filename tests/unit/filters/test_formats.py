"""Tests of checks of values by a schema: unique items in one pass, and numbers that readers could change."""

import json
import random
import sys
import tracemalloc

import pytest
from jsonschema import Draft202012Validator

from klamm_filters.records.formats import MAX_JSON_BYTES, check_of


@pytest.fixture
def unique(tmp_path):
    schema = tmp_path / "schema.json"
    schema.write_text('{"uniqueItems": true}')
    return check_of("any", schema)


def value(chance, depth=0):
    kind = chance.randrange(6 if depth < 3 else 4)
    if kind < 2:
        return chance.choice([None, True, False, 0, 1, -1, 10**300])
    if kind < 4:
        return chance.choice([0.0, -0.0, 1.0, 1.5, 1e300, "", "1", "a", "\ud800"])
    parts = [value(chance, depth + 1) for _ in range(chance.randrange(3))]
    return parts if kind == 4 else {chance.choice("ab"): one for one in parts}


def test_unique_items_are_the_same_as_in_the_library(unique):
    chance, library = random.Random(5), Draft202012Validator({"uniqueItems": True})
    outcomes = set()
    for _ in range(5_000):
        items = [value(chance) for _ in range(chance.randrange(5))]
        expected = library.is_valid(items)
        assert (unique(json.dumps(items).encode()) is None) == expected, items
        outcomes.add(expected)
    assert outcomes == {True, False}


def calls_of(check, content):
    """Return how many functions are called for a value."""
    calls = 0

    def count(_frame, event, _argument):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        assert check(content) is None
    finally:
        sys.setprofile(None)
    return calls


def test_the_cost_of_unique_items_grows_linearly(unique):
    """The library compares each pair of objects, which takes hours for a value of 1 MB."""
    few, many = (json.dumps([{"a": number} for number in range(count)]).encode() for count in (100, 400))
    assert calls_of(unique, many) < 6 * calls_of(unique, few)
    assert unique(b'[{"a": 1}, {"a": 1.0}]') == "$: [{'a': 1}, {'a': 1.0}] has non-unique elements"


@pytest.mark.parametrize("number", ["1" + "0" * 309, "-1" + "0" * 309, "1e309"])
def test_a_number_that_no_double_can_hold_is_refused(number, tmp_path):
    schema = tmp_path / "schema.json"
    schema.write_text('{"multipleOf": 0.01}')
    for check in (check_of("json", None), check_of("any", schema)):
        assert check(number.encode()) == "not JSON: a number is too large"
        assert check(b"1" + b"0" * 300) is None


MIB = 1 << 20
WIDE = "\U0001f600".encode()
"""With one such character, Python takes four bytes for each character of a text."""


@pytest.mark.parametrize(
    ("kind", "content", "problem"),
    [
        ("utf8", b"a" * 32 * MIB + WIDE, None),
        ("utf8", (WIDE * MIB)[1:], "not UTF-8"),
        ("utf8", (WIDE * MIB)[:-1], "not UTF-8"),
        ("utf8", b"a" + WIDE * 8 * MIB, None),
        ("json", b'"' + b"a" * (MAX_JSON_BYTES - 2 - len(WIDE)) + WIDE + b'"', None),
        ("json", b'"' + b"a" * 32 * MIB + WIDE + b'"', f"not JSON: more than {MAX_JSON_BYTES} bytes"),
    ],
    ids=["text", "cut before", "cut behind", "wide text", "JSON as large as may be", "JSON"],
)
def test_a_value_takes_little_memory(kind, content, problem):
    check = check_of(kind, None)
    tracemalloc.start()
    try:
        assert check(content) == problem
        assert tracemalloc.get_traced_memory()[1] < 96 * MIB
    finally:
        tracemalloc.stop()
