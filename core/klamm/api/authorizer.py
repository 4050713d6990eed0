"""What an authorizer implements: may this principal do that to this resource? After Kafka's interface `Authorizer`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from klamm.api.part import ListenerPart
from klamm.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from klamm.api.context import RequestContext


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
    """Selects ACLs; None or ANY matches all."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY


class Authorizer(ListenerPart, ABC):
    """Decides what a client may do. Handler sets call it for each request, through `RequestContext.authorize`.

    Called from processors and request handlers concurrently; must not block. An exception denies and is logged.
    An authorizer that stores ACLs also implements `acls`, `create_acls` and `delete_acls`; these may block.
    """

    @abstractmethod
    def authorize(
        self,
        context: RequestContext,
        operation: AclOperation,
        resource_type: ResourceType,
        resource_name: str,
        *,
        log_if_denied: bool = True,
    ) -> bool:
        """Whether the request's principal, from its address, may do this to that resource.

        `log_if_denied` is False if the client did not name the resource, e.g. when a list is filtered.
        """

    @abstractmethod
    def authorize_by_resource_type(
        self, context: RequestContext, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Whether it may do this to at least one resource of the type (KIP-679)."""

    def acls(self, wanted: AclBindingFilter) -> Collection[AclBinding]:
        """The rules that match. Raises KafkaError."""
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "this authorizer keeps no ACLs")

    def create_acls(self, bindings: Sequence[AclBinding]) -> list[KafkaError | None]:
        """Add ACLs durably; returns the error of each, or None. Raises KafkaError."""
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "this authorizer keeps no ACLs")

    def delete_acls(self, filters: Sequence[AclBindingFilter]) -> list[Collection[AclBinding] | KafkaError]:
        """Delete ACLs durably; returns the deleted ACLs of each filter, or its error. Raises KafkaError."""
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "this authorizer keeps no ACLs")
