"""The extension `control`, an HTTP API that controls a test server from any language, and the command `klamm nodes`."""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_commands() -> Iterator[Provider]:
    """Yield the command `klamm nodes`."""
    yield Provider(
        "nodes", "klamm_control.nodes:run", summary="stop and start nodes of a test server, and move leaders"
    )


@hookimpl
def klamm_extensions() -> Iterator[Provider]:
    """Yield the extension `control`: topics, records, faults, nodes, recordings and time over HTTP."""
    yield Provider(
        "control",
        "klamm_control.extension:Control",
        settings="klamm_control.extension:ControlSettings",
        summary="topics, records, faults, nodes, recorded requests and time over HTTP with a token; for tests",
    )
