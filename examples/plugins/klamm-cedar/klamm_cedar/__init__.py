"""klamm-cedar: the authorizer `cedar`.

klamm imports this module at every start, so it holds the hook alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_authorizers() -> Iterator[Provider]:
    """Yield the names that a configuration can use, and the place of their code."""
    yield Provider(
        "cedar",
        factory="klamm_cedar.authorizer:CedarAuthorizer",
        settings="klamm_cedar.authorizer:CedarSettings",
        summary="decides by a file of policies in Cedar",
    )
