"""klamm-opa: the authorizer `opa`.

klamm imports this module at every start, so it holds the hook alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_authorizers() -> Iterator[Provider]:
    """Yield the names that a configuration can use, and the place of their code."""
    yield Provider(
        "opa",
        factory="klamm_opa.authorizer:OpaAuthorizer",
        settings="klamm_opa.authorizer:OpaSettings",
        summary="asks an Open Policy Agent server",
    )
