"""Settings of `[audit.readers.NAME]`: which part of the trail a reader may read."""

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
    """`[audit.readers.NAME]`. Only `klamm audit publish` uses it, not the server."""

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
        doc="What the reader sees a pseudonym of: `principal`, `address`. Needs `pseudonym_key`.",
    )
    pseudonym_key: Path | None = setting(None, doc="File of `klamm audit key` that makes them.", private=True)


def read_readers(file: Path) -> dict[str, ReaderSettings]:
    """Return the readers of a file, by their names. Raises klamm.ConfigError."""
    tables, _ = read_tables(file)
    audit = tables.get("audit", {})
    names = audit.get("readers", {}) if isinstance(audit, dict) else {}
    path = ("audit", "readers")
    return {name: load_settings(file, (*path, name), ReaderSettings) for name in names}
