"""Defaults in the prose of a page are those of the settings: `` `key` (5 s) ``, `` `key` is 100 MiB by default ``."""

import re

from tests.unit.cli import wrong_settings
from tests.unit.docs.test_documents import DOCUMENTS, ROOT, prose

UNITS = {"s": 1000, "ms": 1, "KiB": 1024, "MiB": 1024**2, None: 1}
AMOUNT = r"(?P<amount>[\d,]+)(?: (?P<unit>s|ms|KiB|MiB)\b)?"
IN_BRACKETS = re.compile(rf"`(?P<key>[a-z][a-z0-9_.]*)` \({AMOUNT}(?=[ ,)])")
BY_DEFAULT = re.compile(rf"`(?P<key>[a-z][a-z0-9_.]*)` is {AMOUNT} by default")


def stated(text):
    """Return the keys and defaults in a text."""
    for pattern in (IN_BRACKETS, BY_DEFAULT):
        for one in pattern.finditer(" ".join(text.split())):
            yield one["key"], int(one["amount"].replace(",", "")) * UNITS[one["unit"]]


def test_defaults_are_read_from_prose():
    text = "After `a_ms` (1 s) or `b` (1,000, KIP-1), as\n`c.bytes` is 2 KiB by default; `d` (KIP-1), `e` (1 of 2)."
    assert list(stated(text)) == [("a_ms", 1000), ("b", 1000), ("e", 1), ("c.bytes", 2048)]


def test_defaults_in_a_page_are_those_of_the_settings():
    defaults = {}
    for table in wrong_settings.tables():
        for key, spec in table.specs.items():
            for name in {key, spec.attribute, spec.kafka}:
                defaults.setdefault(name, []).append(spec.default)
    found = [
        (str(document.relative_to(ROOT)), key, value)
        for document in DOCUMENTS
        for key, value in stated(prose(document))
        if key in defaults
    ]
    assert len(found) >= 8
    assert [one for one in found if one[2] not in defaults[one[1]]] == []
