"""klamm-print: the handler set `print`. klamm imports this module at every start, so it holds only the hook."""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_api_sets() -> Iterator[Provider]:
    """Yield the names that TOML can use, the place of their code, and their settings."""
    yield Provider(
        "print",
        factory="klamm_print.api_set:PrintRecords",
        settings="klamm_print.settings:PrintSettings",
        summary="answers producers with success and prints their records",
    )
