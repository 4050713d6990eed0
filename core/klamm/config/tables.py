"""The tables of a configuration file, as TOML has them."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from klamm.config.problems import ConfigError, Problem

DEFAULT: Final[Mapping[str, Any]] = {"listeners": {"default": {}}}


def read_tables(file: Path | None) -> tuple[dict[str, Any], str]:
    """Return the tables of a file and its text. Raises ConfigError if the file cannot be read or is not TOML."""
    if file is None:
        return copy.deepcopy(dict(DEFAULT)), ""
    # Imported here: most programs that import this module read no file.
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


_UNQUOTED: Final = re.compile(r"""\s*([^=#"'\s]+)\s*=\s*([^"'\[\]{}#\s][^"'\[\]{}#]*?)\s*(#.*)?""")


def _quotes_hint(text: str, line_number: int) -> str:
    """Return a hint if the line has a string without quotes."""
    lines = text.splitlines()
    found = _UNQUOTED.fullmatch(lines[line_number - 1]) if line_number <= len(lines) else None
    return f'; a string needs quotes: {found[1]} = "{found[2]}"' if found else ""


def blocked_plugins(file: Path | None) -> tuple[str, ...]:
    """Return `[plugins] block`, which applies before any plugin is loaded."""
    tables, _ = read_tables(file)
    block = tables.get("plugins", {}).get("block", ()) if isinstance(tables.get("plugins", {}), dict) else ()
    return tuple(name for name in block if isinstance(name, str)) if isinstance(block, list) else ()
