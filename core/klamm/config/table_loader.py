"""Functions that check and load one table of a configuration file, for code that needs no server plan.

Any thread may call them, because they share no state.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from klamm.config.problems import ConfigError, Problem
from klamm.config.setting import convert, flatten, specs_of
from klamm.config.tables import position_of, read_tables


def check_table(settings: type, table: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Check a table against a settings class; return a key and a message for each problem."""
    problems: list[tuple[str, str]] = []
    convert(settings, table, lambda key, message: problems.append((key, message)), Path())
    return problems


def load_settings(file: Path, path: tuple[str, ...], settings: type, *, others: bool = False) -> Any:
    """Return the table at `path` as an instance of a settings class; the defaults if the file has no such table.

    With `others`, the table may have keys that the class does not have. Raises ConfigError with file, line and key.
    """
    tables, text = read_tables(file)
    problems: list[Problem] = []

    def report(key: str, message: str, at: tuple[str, ...] = path) -> None:
        whole = (*at, key) if key else at
        position = position_of(text, whole)
        place = f"{file}:{position[0]}:{position[1]}" if position else str(file)
        problems.append(Problem(place, ".".join(whole), message))

    table: Any = tables
    for depth, name in enumerate(path, 1):
        table = table.get(name, {})
        if not isinstance(table, dict):
            report("", "must be a table", path[:depth])
            raise ConfigError(problems)
    if others:
        known = specs_of(settings)
        table = {key: value for key, value in flatten(table, known).items() if key in known}
    made = convert(settings, table, report, file.parent)
    if made is None:
        raise ConfigError(problems)
    return made
