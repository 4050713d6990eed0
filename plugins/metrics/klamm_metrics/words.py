"""Functions that format numbers and names for the terminal, for `klamm top`, `connections` and `explain`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


_PIPE_COLUMNS: Final = 240


def terminal() -> Console:
    """Return what prints on standard output. A pipe has no width, so a long row gets one line there."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=_PIPE_COLUMNS)


def printable(text: str) -> str:
    """Return a name that a client has chosen, with `?` in place of characters that could move the cursor."""
    return "".join(character if character.isprintable() else "?" for character in text)


def plain(text: str) -> Text:
    """Return a name that a client has chosen, like `printable`, and escaped so that it is not read as markup."""
    from rich.text import Text

    return Text(printable(text))


def counted(number: float, noun: str) -> str:
    """Return a number and a noun. The noun gets an s unless the number is 1."""
    return f"{number:,.0f} {noun}{'' if number == 1 else 's'}"


def short_number(value: float) -> str:
    """Return a number as text: with two decimals below 10, with none above."""
    if value and abs(value) < 10:
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return f"{value:,.0f}"


def short_bytes(value: float) -> str:
    """Return a number of bytes as text with a unit."""
    for unit in ("B", "KiB", "MiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
