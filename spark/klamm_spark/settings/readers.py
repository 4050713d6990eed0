"""The settings `[audit.readers.NAME]`: the part of the trail that a reader gets from `klamm audit publish`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from klamm import setting
from klamm.config import load_settings, read_tables
from klamm_spark.events.event import ACTIONS
from klamm_spark.events.pseudonyms import check_pseudonyms


def _check_kinds(kinds: tuple[str, ...]) -> str | None:
    wrong = next((kind for kind in kinds if kind not in ACTIONS), None)
    return None if wrong is None else f'"{wrong}" is no kind of event; kinds are {", ".join(ACTIONS)}'


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderSettings:
    """`[audit.readers.NAME]`. The server does not use it."""

    folder: Path = setting(
        doc="Folder that `klamm audit publish` writes the reader's part of the trail to. Who can read the folder is "
        "the reader."
    )
    kinds: tuple[str, ...] = setting((), check=_check_kinds, doc="Kinds of events that it has; empty is all.")
    principals: tuple[str, ...] = setting(
        (), doc='Patterns of accounts whose events it has, e.g. `"User:payments-*"`; empty is all.'
    )
    topics: tuple[str, ...] = setting(
        (),
        doc='Patterns of topics whose events it has, e.g. `"payments.*"`, and of an event only these topics; empty is '
        "all events.",
    )
    pseudonyms: tuple[str, ...] = setting(
        (),
        check=check_pseudonyms,
        doc="Names that the reader sees as pseudonyms: `principal`, `address`. Needs `pseudonym_key`.",
    )
    pseudonym_key: Path | None = setting(None, doc="File of `klamm audit key` that makes them.", private=True)


def read_readers(file: Path) -> dict[str, ReaderSettings]:
    """Return the readers in a TOML file, by name. Raises klamm.ConfigError."""
    tables, _ = read_tables(file)
    audit = tables.get("audit", {})
    names = audit.get("readers", {}) if isinstance(audit, dict) else {}
    path = ("audit", "readers")
    return {name: load_settings(file, (*path, name), ReaderSettings) for name in names}
