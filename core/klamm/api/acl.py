"""Access control lists: operations, resource types and rules, with Kafka's names and codes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple


class ResourceType(IntEnum):
    """Kafka's class of that name, with its codes on the wire."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """Kafka's class of that name (KIP-290). ANY and MATCH are for filters alone."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """Kafka's class of that name, with its codes on the wire."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    """Kafka's `AclPermissionType`. ANY is for filters alone."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""
WILDCARD: Final = "*"
"""The resource name, host or user name that matches all."""


@dataclass(frozen=True, slots=True, order=True)
class AclBinding:
    """One rule. `principal` is `User:alice` or `User:*`; `host` an address, a CIDR network or `*`."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission


@dataclass(frozen=True, slots=True)
class AclBindingFilter:
    """Selects ACL bindings; None or ANY matches every value. Named after Kafka's class."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY


class Verdict(NamedTuple):
    """A decision and the reason for it. Test `granted`: the object itself is always true.

    `decided_by` is `acl`, `static_rule`, `super_user`, `no_acl_found` (the default of resources without rules),
    `not_known` (there are no rules yet) or a word of the authorizer's own; empty if it gives none. `acl` is the rule
    that matched. Create a frequent verdict once and reuse it, because each request needs one.
    """

    granted: bool
    decided_by: str = ""
    acl: AclBinding | None = None
