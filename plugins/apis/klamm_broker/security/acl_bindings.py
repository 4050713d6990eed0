"""Conversion of ACLs between the wire format and `klamm.AclBinding`. The handlers of the three ACL APIs call it."""

from __future__ import annotations

from typing import Protocol

from klamm import ErrorCode, KafkaError, Pending, RequestContext
from klamm.acl import AclBindingFilter, AclOperation, AclPermission, Authorizer, PatternType, ResourceType
from klamm_broker.security.authorization import require_cluster

_RESOURCE_TYPES, _PATTERN_TYPES, _OPERATIONS, _PERMISSIONS = (
    frozenset(kind) - {0} for kind in (ResourceType, PatternType, AclOperation, AclPermission)
)
"""The known values: UNKNOWN, whose code is 0, is left out."""


class WireFilter(Protocol):
    """A filter as DescribeAcls and DeleteAcls write it."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def authorizer_of(context: RequestContext, operation: AclOperation) -> Authorizer:
    """Return the listener's authorizer if the client may perform the operation on the cluster.

    Raises KafkaError: SECURITY_DISABLED if the listener has no authorizer with ACLs, CLUSTER_AUTHORIZATION_FAILED.
    """
    authorizer = context.listener.authorizer
    if authorizer is None:
        where = " on the broker" if operation is AclOperation.DESCRIBE else "."
        raise KafkaError(ErrorCode.SECURITY_DISABLED, f"No Authorizer is configured{where}")
    require_cluster(context, operation)
    if not isinstance(authorizer, Authorizer):
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "this authorizer keeps no ACLs")
    return authorizer


def are_known(resource_type: int, pattern_type: int, operation: int, permission: int) -> bool:
    """Return True if all of these codes are known. Kafka cannot parse a request with an unknown code, and closes the
    connection.
    """
    return (
        resource_type in _RESOURCE_TYPES
        and pattern_type in _PATTERN_TYPES
        and operation in _OPERATIONS
        and permission in _PERMISSIONS
    )


def is_known(wire: WireFilter) -> bool:
    """Return True if all codes in the filter are known, so that `filter_of` can convert it."""
    return are_known(wire.resource_type_filter, wire.pattern_type_filter, wire.operation, wire.permission_type)


def refuse_unknown(context: RequestContext) -> Pending:
    """End the connection of a client that has sent an unknown type, operation or permission, like Kafka does."""
    context.close_connection("an ACL has an unknown type, operation or permission")
    return context.later()


def filter_of(wire: WireFilter) -> AclBindingFilter:
    """Return the filter; the argument must satisfy `is_known`."""
    return AclBindingFilter(
        ResourceType(wire.resource_type_filter),
        wire.resource_name_filter,
        PatternType(wire.pattern_type_filter),
        wire.principal_filter,
        wire.host_filter,
        AclOperation(wire.operation),
        AclPermission(wire.permission_type),
    )
