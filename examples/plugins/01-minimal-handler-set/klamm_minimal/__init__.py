"""klamm-minimal: the handler set `minimal`.

klamm imports this module at every start, so it holds the hook alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_api_sets() -> Iterator[Provider]:
    """What a configuration can name, and where its code is."""
    yield Provider(
        "minimal",
        factory="klamm_minimal.api_set:Minimal",
        summary="answers Metadata alone",
    )
