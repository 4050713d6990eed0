"""Lines and columns of keys in a TOML file; looked for only when something is wrong with one of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_HEADER: Final = re.compile(r"""^\s*\[{1,2}\s*((?:"[^"]*"|'[^']*'|[^\]"'])+?)\s*\]{1,2}""")
_ASSIGNMENT: Final = re.compile(
    r"""^\s*((?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+))*)\s*="""
)
_PART: Final = re.compile(r""""([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+)""")
# Comments and short strings are matched too, so that three quotes within them open nothing.
_QUOTED: Final = re.compile(
    r'''#[^\n]*|"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|'[^'\n]*\'''', re.DOTALL
)


def _parts(text: str) -> list[str]:
    return [a or b or c for a, b, c in _PART.findall(text)]


def _without_long_strings(text: str) -> str:
    """Return the text with the same lines, but without the contents of multi-line strings."""
    return _QUOTED.sub(lambda found: "\n" * found[0].count("\n") or found[0], text)


def find(text: str, path: Sequence[str]) -> tuple[int, int] | None:
    """Return line and column, from 1, of the key at `path`, or else of the first key below it, or of the nearest table
    above.
    """
    wanted = ".".join(path).split(".")
    table: list[str] = []
    best: tuple[int, tuple[int, int]] | None = None
    below: tuple[int, int] | None = None
    for number, line in enumerate(_without_long_strings(text).splitlines(), 1):
        header = _HEADER.match(line)
        assignment = None if header else _ASSIGNMENT.match(line)
        if header:
            table = here = ".".join(_parts(header.group(1))).split(".")
            column = line.index("[") + 1
        elif assignment:
            here = [*table, *".".join(_parts(assignment.group(1))).split(".")]
            column = len(line) - len(line.lstrip()) + 1
        else:
            continue
        if here == wanted[: len(here)] and (best is None or len(here) > best[0]):
            best = (len(here), (number, column))
        elif below is None and here[: len(wanted)] == wanted:
            below = (number, column)
    if best is not None and (best[0] == len(wanted) or below is None):
        return best[1]
    return below
