"""`ConfigTables`: the tables of a configuration, the origin of each key, and the problems found."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from klamm.config.problems import Problem
from klamm.config.setting import UNKNOWN_KEY, convert, flatten, specs_of
from klamm.config.tables import position_of

_LISTENERS_HINT: Final = ': write [listeners.NAME] and below it bind = "HOST:PORT"'


class Put(NamedTuple):
    """A value for a path in the configuration. It overrides the file and the command line.

    `key` is Kafka's name of the setting.
    """

    path: tuple[str, ...]
    value: str
    key: str


class ConfigTables:
    """The tables of a file, with the changes of the command line. `load_plan` makes it for one call.

    - `problems` and `warnings` collect the findings.
    - `overridden` maps the dotted path of a key to the command-line argument that set it.
    - `origins` maps the path of a key to the path in a shared table from which the key was copied.
    - `place_of(key, value)` returns the place where an unknown key belongs.
    """

    def __init__(self, file: Path | None, tables: dict[str, Any], text: str) -> None:
        self.file = file
        self.base = file.parent if file is not None else Path()
        self.tables = tables
        self.text = text
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.overridden: dict[str, str] = {}
        self.origins: dict[tuple[str, ...], tuple[str, ...]] = {}
        self.place_of: Callable[[str, object], str | None] = lambda key, value: None

    def report(self, path: tuple[str, ...], message: str) -> None:
        """Add a problem with the key at `path`."""
        problem = self.problem(path, message)
        if problem not in self.problems:
            self.problems.append(problem)

    def problem(self, path: tuple[str, ...], message: str) -> Problem:
        """Return a problem with the key at `path`, with its file, line and column or its command-line argument."""
        for depth in range(len(path), 0, -1):
            if path[:depth] in self.origins:
                path = (*self.origins[path[:depth]], *path[depth:])
                break
        place = self.overridden.get(".".join(path), "")
        if not place and self.file is not None:
            position = position_of(self.text, path)
            place = f"{self.file}:{position[0]}:{position[1]}" if position else str(self.file)
        return Problem(place, ".".join(path), message)

    def table(self, path: tuple[str, ...]) -> dict[str, Any]:
        """Return a copy of the table at `path`; empty if there is none. A value that is not a table is reported."""
        here: Any = self.tables
        for depth, key in enumerate(path, 1):
            here = here.get(key, {})
            if not isinstance(here, dict):
                hint = _LISTENERS_HINT if path[0] == "listeners" and depth <= 2 else ""
                self.report(path[:depth], "must be a table" + hint)
                return {}
        return dict(here)

    def settings(self, kind: type, *path: str, leave_out: Sequence[str] = ()) -> Any:
        """Return the table at `path` as settings of class `kind`; None, after a report, if it has problems."""
        table = {key: value for key, value in self.table(path).items() if key not in leave_out}
        prefix = ".".join(path) + "."
        # A value of `--set` is text, even where a number is needed.
        specs = specs_of(kind)
        for key in flatten(table, specs):
            if key in specs and specs[key].deprecated:
                self.warnings.append(self.problem((*path, key), f"is deprecated: {specs[key].deprecated}"))
        lenient = {key.removeprefix(prefix) for key in self.overridden if key.startswith(prefix)}

        def report(key: str, message: str) -> None:
            if message.startswith(UNKNOWN_KEY):
                place = self.place_of(key, table.get(key))
                message = f"{UNKNOWN_KEY}; {place}" if place else message
            self.report((*path, key), message)

        return convert(kind, table, report, self.base, lenient=lenient)

    def set_default(self, path: tuple[str, ...], value: object) -> None:
        """Set the key at `path`, whose table exists, unless it has a value."""
        table: Any = self.tables
        for key in path[:-1]:
            table = table.setdefault(key, {})
            if not isinstance(table, dict):
                return
        table.setdefault(path[-1], value)

    def names_at(self, path: tuple[str, ...]) -> list[str]:
        """Return the names in the list at `path`."""
        names = self.table(path[:-1]).get(path[-1], ())
        return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []

    def inherit(self, path: tuple[str, ...], common: tuple[str, ...]) -> None:
        """Copy the keys of the table at `common` that the table at `path` lacks into the table at `path`."""
        shared = self.table(common)
        if not shared:
            return
        own: Any = self.tables
        for key in path:
            own = own.setdefault(key, {})
            if not isinstance(own, dict):
                return
        for key, value in shared.items():
            if key not in own:
                own[key] = copy.deepcopy(value)
                self.origins[(*path, key)] = (*common, key)
