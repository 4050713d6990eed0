"""klamm-tap: the transport `tap`.

klamm imports this module at every start, so it holds the hook alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_transports() -> Iterator[Provider]:
    """Yield the names that a configuration can use, and the place of their code."""
    yield Provider(
        "tap",
        factory="klamm_tap.transport:TapTransport",
        settings="klamm_tap.transport:TapSettings",
        summary="plaintext, with a copy of all bytes in files",
    )
