"""The entry points of one group that installed distributions declare.

`importlib.metadata` gives the same result, but takes a fifth of klamm's start: it imports `email` and `zipfile`, and
reads the metadata of every installed distribution. This module first reads `entry_points.txt`, which few distributions
have, and reads the metadata only if the distribution declares the group. If Python's path contains archives, or if
additional finders are installed, this module uses `importlib.metadata`.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from functools import reduce
from importlib.machinery import PathFinder
from typing import Any, NamedTuple, Protocol

_INFO_SUFFIXES = (".dist-info", ".egg-info")


class DistributionName(Protocol):
    """The name of an installed distribution, e.g. `klamm`, and its version."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...


class EntryPoint(Protocol):
    """A name, and an object that `load` imports; `importlib.metadata.EntryPoint` is one."""

    @property
    def name(self) -> str: ...

    @property
    def dist(self) -> DistributionName | None: ...

    def load(self) -> Any: ...


class InstalledDistribution(NamedTuple):
    """See `DistributionName`."""

    name: str
    version: str


class InstalledEntryPoint(NamedTuple):
    """One line of an `entry_points.txt`; `value` is `package.module:attribute` or `package.module`."""

    name: str
    value: str
    dist: InstalledDistribution

    def load(self) -> Any:
        """Import the object. Raises the import's exceptions, and AttributeError."""
        module, _, attribute = (part.strip() for part in self.value.partition("[")[0].partition(":"))
        return reduce(getattr, filter(None, attribute.split(".")), importlib.import_module(module))


def installed_entry_points(group: str) -> list[EntryPoint]:
    """Return the entry points of a group in the order of `sys.path`.

    If a distribution is there twice, the first counts.
    """
    if not _is_plain(sys.path, sys.meta_path):
        # Not imported at the top of the module, because the import is slow.
        import importlib.metadata

        return list(importlib.metadata.entry_points(group=group))
    return list(find_entry_points(group, sys.path))


def _is_plain(path: list[str], finders: list[Any]) -> bool:
    """Return True if all distributions are in directories of the path."""
    others = [finder for finder in finders if finder is not PathFinder and hasattr(finder, "find_distributions")]
    return not others and not any(entry.endswith(".egg") or os.path.isfile(entry) for entry in path)


def find_entry_points(group: str, path: list[str]) -> Iterator[InstalledEntryPoint]:
    """Yield the entry points of a group that distributions in the directories of a path declare."""
    seen: set[str] = set()
    for folder in path:
        for info in _info_folders(folder or "."):
            project = _normalized(os.path.basename(info))
            if project in seen:
                continue
            seen.add(project)
            try:
                with open(os.path.join(info, "entry_points.txt"), encoding="utf-8") as file:
                    text = file.read()
            except OSError:
                continue
            pairs = list(_section(text, group))
            if pairs:
                distribution = _distribution(info)
                yield from (InstalledEntryPoint(name, value, distribution) for name, value in pairs)


def _info_folders(folder: str) -> list[str]:
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [os.path.join(folder, name) for name in names if name.endswith(_INFO_SUFFIXES)]


def _normalized(info: str) -> str:
    """Return the distribution's name from the name of its folder, normalized for comparison (PEP 503)."""
    return info.rpartition(".")[0].partition("-")[0].lower().replace(".", "_")


def _section(text: str, group: str) -> Iterator[tuple[str, str]]:
    inside = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            inside = line == f"[{group}]"
        elif inside and line and not line.startswith("#"):
            name, _, value = line.partition("=")
            yield name.strip(), value.strip()


def _distribution(info: str) -> InstalledDistribution:
    """Return a distribution with the name and version in its metadata, "?" if they are missing."""
    fields = {"name": "?", "version": "?"}
    for file_name in ("METADATA", "PKG-INFO"):
        try:
            with open(os.path.join(info, file_name), encoding="utf-8", errors="replace") as file:
                for line in file:
                    key, colon, value = line.partition(":")
                    if not line.strip() or not colon:
                        # The headers end here; the description follows.
                        break
                    if key.lower() in fields:
                        fields[key.lower()] = value.strip()
        except OSError:
            continue
        break
    return InstalledDistribution(**fields)
