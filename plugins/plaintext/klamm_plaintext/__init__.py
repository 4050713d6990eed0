"""The transport `plaintext`. klamm imports this module at every start and calls its hook."""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_transports() -> Iterator[Provider]:
    """Yield the transport `plaintext`: unchanged bytes."""
    yield Provider(
        "plaintext", "klamm_plaintext.transport:PlaintextTransport", summary="unchanged bytes over TCP", default=True
    )
