"""Numbers and names as a terminal shows them."""

from __future__ import annotations

from rich.text import Text


def printable(text: str) -> str:
    """Return a name that a client chose, so that it does not move the cursor."""
    return "".join(character if character.isprintable() else "?" for character in text)


def plain(text: str) -> Text:
    """Return a name that a client chose, so that it neither moves the cursor nor is interpreted as markup."""
    return Text(printable(text))


def short_number(value: float) -> str:
    """Return a number with two decimals below 10, and with none above."""
    if value and abs(value) < 10:
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return f"{value:,.0f}"


def short_bytes(value: float) -> str:
    """Return a number of bytes with a unit."""
    for unit in ("B", "KiB", "MiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
