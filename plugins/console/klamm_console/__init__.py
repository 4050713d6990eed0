"""The extension `console`: a page that shows a running server, and acts as the user who is logged in."""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_extensions() -> Iterator[Provider]:
    """Yield the console."""
    yield Provider(
        "console",
        "klamm_console.extension:Console",
        settings="klamm_console.console_settings:ConsoleSettings",
        summary="a page that shows a running server; who logs in acts with the own rights",
    )
