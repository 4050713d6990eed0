"""Functions that read the tables of a TOML file, and find the lines and columns of its keys."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from klamm.config.problems import ConfigError, Problem

# Texts, which `re` compiles at their first use: a start without a file needs none.
_HEADER: Final = r"""^\s*\[{1,2}\s*((?:"[^"]*"|'[^']*'|[^\]"'])+?)\s*\]{1,2}"""
_ASSIGNMENT: Final = r"""^\s*((?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+))*)\s*="""
_PART: Final = r""""([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+)"""
# Comments and short strings are matched too, so that three quotes within them do not start a long string.
_QUOTED: Final = r'''(?s)#[^\n]*|"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|'[^'\n]*\''''
DEFAULT: Final[Mapping[str, Any]] = {"listeners": {"default": {}}}


def read_tables(file: Path | None) -> tuple[dict[str, Any], str]:
    """Return the tables of a file and its text. Raises ConfigError if the file cannot be read or is not TOML."""
    if file is None:
        return copy.deepcopy(dict(DEFAULT)), ""
    # Imported here, because most programs that import this module read no file.
    import tomli

    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError([Problem(str(file), "", f"cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([Problem(str(file), "", f"is not UTF-8: {error.reason} at byte {error.start}")]) from error
    try:
        return tomli.loads(text), text
    except tomli.TOMLDecodeError as error:
        place = f"{file}:{error.lineno}:{error.colno}"
        raise ConfigError([Problem(place, "", error.msg + _quotes_hint(text, error.lineno))]) from error


_UNQUOTED: Final = r"""\s*([^=#"'\s]+)\s*=\s*([^"'\[\]{}#\s][^"'\[\]{}#]*?)\s*(#.*)?"""


def _quotes_hint(text: str, line_number: int) -> str:
    """Return a hint if the line has a string without quotes."""
    lines = text.splitlines()
    found = re.fullmatch(_UNQUOTED, lines[line_number - 1]) if line_number <= len(lines) else None
    return f'; a string needs quotes: {found[1]} = "{found[2]}"' if found else ""


def blocked_plugins(file: Path | None) -> tuple[str, ...]:
    """Return the value of `[plugins] block`, which is needed before any plugin is loaded."""
    tables, _ = read_tables(file)
    block = tables.get("plugins", {}).get("block", ()) if isinstance(tables.get("plugins", {}), dict) else ()
    return tuple(name for name in block if isinstance(name, str)) if isinstance(block, list) else ()


def _parts(text: str) -> list[str]:
    return [a or b or c for a, b, c in re.findall(_PART, text)]


def _without_long_strings(text: str) -> str:
    """Return the text with the same lines, but without the contents of multi-line strings."""
    return re.sub(_QUOTED, lambda found: "\n" * found[0].count("\n") or found[0], text)


def position_of(text: str, path: Sequence[str]) -> tuple[int, int] | None:
    """Return line and column, from 1, of the key at `path`.

    If the file does not have the key, return the position of the first key below it, or of the nearest table above it.
    """
    wanted = ".".join(path).split(".")
    table: list[str] = []
    best: tuple[int, tuple[int, int]] | None = None
    below: tuple[int, int] | None = None
    for number, line in enumerate(_without_long_strings(text).splitlines(), 1):
        header = re.match(_HEADER, line)
        assignment = None if header else re.match(_ASSIGNMENT, line)
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
