"""Parses and checks rules in text form, for the settings of `static` and for the ACL APIs of both authorizers."""

from __future__ import annotations

import ipaddress
from typing import Final

from klamm.acl import CLUSTER_NAME, WILDCARD, AclBinding, AclOperation, AclPermission, PatternType, ResourceType

_PERMISSIONS: Final = {"allow": AclPermission.ALLOW, "deny": AclPermission.DENY}
_NOT_IN_RULES: Final = ("UNKNOWN", "ANY")


def check_principal(principal: str) -> None:
    """Raise ValueError unless the text is `TYPE:NAME`."""
    kind, colon, name = principal.partition(":")
    if not colon or not kind or not name:
        raise ValueError(f'"{principal}" is not a principal such as User:alice')


def check_host(host: str) -> None:
    """Raise ValueError unless the text is `*`, an address or a CIDR network."""
    if host == WILDCARD:
        return
    _address, slash, length = host.partition("/")
    try:
        # Kafka does not accept a netmask instead of the length.
        if slash and not (length.isascii() and length.isdecimal()):
            raise ValueError(f'"{length}" is not the length of a prefix')
        ipaddress.ip_network(host, strict=False)
    except ValueError as error:
        raise ValueError(f'"{host}" is not an address, a CIDR network or *') from error


def parse_rule(text: str) -> list[AclBinding]:
    """Return the bindings of `allow|deny PRINCIPAL OPERATION,… RESOURCE:NAME [from HOST]`, one per operation.

    RESOURCE is topic, group, cluster (without a name), transactional_id, delegation_token or user. A NAME that ends in
    `*` is a prefix; `*` alone stands for every resource. Raises ValueError.
    """
    words = text.split()
    host = WILDCARD
    if len(words) == 6 and words[4] == "from":
        host = words[5]
        words = words[:4]
    if len(words) != 4:
        raise ValueError("must have the form: allow|deny PRINCIPAL OPERATION,... RESOURCE:NAME [from HOST]")
    permission = _PERMISSIONS.get(words[0].lower())
    if permission is None:
        raise ValueError(f'begins with "{words[0]}" instead of allow or deny')
    check_principal(words[1])
    check_host(host)
    resource_type, name, pattern_type = _resource(words[3])
    return [
        AclBinding(resource_type, name, pattern_type, words[1], host, operation, permission)
        for operation in map(_operation, words[2].split(","))
    ]


def _operation(text: str) -> AclOperation:
    name = text.upper()
    known = [operation.name for operation in AclOperation if operation.name not in _NOT_IN_RULES]
    if name not in known:
        raise ValueError(f'"{text}" is not an operation ({", ".join(known)})')
    return AclOperation[name]


def _resource(text: str) -> tuple[ResourceType, str, PatternType]:
    kind, _, name = text.partition(":")
    known = [resource.name.lower() for resource in ResourceType if resource.name not in _NOT_IN_RULES]
    if kind.lower() not in known:
        raise ValueError(f'"{kind}" is not a resource type ({", ".join(known)})')
    resource_type = ResourceType[kind.upper()]
    if resource_type is ResourceType.CLUSTER:
        if name not in ("", WILDCARD, CLUSTER_NAME):
            raise ValueError("there is only one cluster: write `cluster` without a name")
        return resource_type, CLUSTER_NAME, PatternType.LITERAL
    if not name:
        raise ValueError(f"must name the {kind}, e.g. {kind}:orders or {kind}:*")
    if name != WILDCARD and name.endswith(WILDCARD):
        return resource_type, name[:-1], PatternType.PREFIXED
    return resource_type, name, PatternType.LITERAL
