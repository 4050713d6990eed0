"""klamm-sqlite: the handler set `sqlite`.

klamm imports this module at every start, so it holds the hook alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_api_sets() -> Iterator[Provider]:
    """Yield the names that a configuration can use, and the place of their code."""
    yield Provider(
        "sqlite",
        factory="klamm_sqlite.api_set:SqliteSink",
        settings="klamm_sqlite.api_set:SqliteSettings",
        summary="stores what producers send in a SQLite file",
    )
