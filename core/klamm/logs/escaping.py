"""Names that clients choose, in lines of a log."""

from __future__ import annotations


def in_one_line(text: str) -> str:
    """The text if it can be printed as it is, else quoted and escaped: no client begins a line of the log."""
    return text if text.isprintable() else ascii(text)
