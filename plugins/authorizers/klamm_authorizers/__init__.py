"""The authorizers `acl` and `static`. klamm imports this module at every start and calls its hook."""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_authorizers() -> Iterator[Provider]:
    """Yield the authorizers: Kafka's ACLs, kept by the broker or written in the configuration."""
    yield Provider(
        "acl",
        "klamm_authorizers.acl:AclAuthorizer",
        settings="klamm_authorizers.authorizer_settings:AclSettings",
        summary="Kafka's ACLs, changed with kafka-acls and admin clients",
    )
    yield Provider(
        "static",
        "klamm_authorizers.static:StaticAuthorizer",
        settings="klamm_authorizers.authorizer_settings:StaticSettings",
        summary="rules from the configuration",
    )
