"""The extension `control`: what tests in any language do to a server, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_extensions() -> Iterator[Provider]:
    """Topics, records, faults, recordings and time over HTTP."""
    yield Provider(
        "control",
        "klamm_control.extension:Control",
        settings="klamm_control.extension:ControlSettings",
        summary="topics, records, faults, recorded requests and time over HTTP with a token; for tests",
    )
