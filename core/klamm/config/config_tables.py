"""`ConfigTables`: the tables of a configuration, with where each key came from and what is wrong with it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from klamm.config import toml_positions as positions
from klamm.config.problems import Problem
from klamm.config.setting import convert


class ConfigTables:
    """The tables of a file, with what the command line changed.

    `problems` collects what is wrong. `overridden` has the command line argument that set a key, by the key's dotted
    path. `origins` has the path in a shared table that a key was copied from, by the key's path.
    """

    def __init__(self, file: Path | None, tables: dict[str, Any], text: str) -> None:
        self.file = file
        self.base = file.parent if file is not None else Path()
        self.tables = tables
        self.text = text
        self.problems: list[Problem] = []
        self.overridden: dict[str, str] = {}
        self.origins: dict[tuple[str, ...], tuple[str, ...]] = {}

    def report(self, path: tuple[str, ...], message: str) -> None:
        """Note a problem with the key at `path`, with its file, line and column or the command line argument."""
        for depth in range(len(path), 0, -1):
            if path[:depth] in self.origins:
                path = (*self.origins[path[:depth]], *path[depth:])
                break
        place = self.overridden.get(".".join(path), "")
        if not place and self.file is not None:
            position = positions.find(self.text, path)
            place = f"{self.file}:{position[0]}:{position[1]}" if position else str(self.file)
        problem = Problem(place, ".".join(path), message)
        if problem not in self.problems:
            self.problems.append(problem)

    def table(self, path: tuple[str, ...]) -> dict[str, Any]:
        """A copy of the table at `path`; empty where there is none. What is no table is reported."""
        here: Any = self.tables
        for depth, key in enumerate(path, 1):
            here = here.get(key, {})
            if not isinstance(here, dict):
                self.report(path[:depth], "must be a table")
                return {}
        return dict(here)

    def settings(self, kind: type, *path: str, leave_out: Sequence[str] = ()) -> Any:
        """The table at `path` as settings of class `kind`; None, with problems reported, if it is wrong."""
        table = {key: value for key, value in self.table(path).items() if key not in leave_out}
        prefix = ".".join(path) + "."
        # What came by `--set` may be text where a number is meant.
        lenient = {key.removeprefix(prefix) for key in self.overridden if key.startswith(prefix)}
        return convert(kind, table, lambda key, message: self.report((*path, key), message), self.base, lenient=lenient)

    def names_at(self, path: tuple[str, ...]) -> list[str]:
        """The names in the list at `path`."""
        names = self.table(path[:-1]).get(path[-1], ())
        return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []

    def inherit(self, path: tuple[str, ...], common: tuple[str, ...]) -> None:
        """Fill up the table at `path` with what the one at `common` says and it does not."""
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
