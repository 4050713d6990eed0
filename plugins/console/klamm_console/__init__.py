"""The extension `console`: a page that shows a running server, and acts with the rights of the logged-in user."""

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
        summary="a page that shows a running server; users act with their own rights",
        workers="parent",
    )
