"""No text of a client can start a line of the log: in a message, an exception or a stack."""

import io
import logging
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.logs.escaping import EscapingFormatter, clipped, escape_control_characters

FORGED = "g\n2026-01-01 00:00:00,000 WARNING klamm.authorizer principal=User:mallory allowed"


@pytest.mark.parametrize("length", [0, 1, 255, 256])
def test_short_texts_are_not_cut(length):
    assert clipped("é" * length) == "é" * length


def test_long_texts_are_cut_and_show_their_length():
    assert clipped("é" * 257) == "é" * 256 + "… (257 characters)"
    assert clipped("abcdef", 3) == "abc… (6 characters)"


def written(log_it):
    """Return the text that `log_it(logger)` writes through the formatter."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(EscapingFormatter("%(levelname)s %(name)s %(message)s"))
    logger = logging.Logger("klamm.test")
    logger.addHandler(handler)
    log_it(logger)
    return stream.getvalue().removesuffix("\n").split("\n")


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("orders", "orders"),
        ("Größe ✓", "Größe ✓"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\u2028b\u202ec", "a\\u2028b\\u202ec"),
        ("\ud800", "\\ud800"),
        ("\x00\x7f\x85", "\\x00\\x7f\\x85"),
    ],
)
def test_only_control_characters_are_escaped(text, escaped):
    assert escape_control_characters(text) == escaped


@given(st.text())
def test_a_record_is_one_printable_line(text):
    (line,) = written(lambda log: log.warning("group %s: %s", text, 1))
    assert line.isprintable()
    (line,) = written(lambda log: log.warning(text.replace("%", "")))
    assert line.startswith("WARNING klamm.test ")


def test_the_lines_of_a_traceback_are_kept_and_indented():
    def log_it(log):
        try:
            raise ValueError(FORGED)
        except ValueError:
            log.exception("request of %s failed", FORGED, stack_info=True)

    first, *others = written(log_it)
    assert first.startswith("ERROR klamm.test request of g\\n2026")
    assert others[0] == "    Traceback (most recent call last):"
    assert "    Stack (most recent call last):" in others
    assert all(line.startswith("    ") for line in others)


def test_tracebacks_that_another_formatter_cached_are_escaped_too():
    try:
        raise ValueError(FORGED)
    except ValueError:
        record = logging.LogRecord("klamm.test", logging.ERROR, __file__, 1, "failed", (), sys.exc_info())
    logging.Formatter().format(record)
    record.exc_info = None
    _, *others = EscapingFormatter().format(record).split("\n")
    assert others
    assert all(line.startswith("    ") for line in others)
