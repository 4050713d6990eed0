"""`Acls`: changes the access control lists of a server for a test. Operations and resources have Kafka's names."""

from __future__ import annotations

from dataclasses import astuple
from enum import Enum
from typing import Any, Final, Literal, TypeAlias, TypeVar

from klamm.api.acl import WILDCARD, AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from klamm.config.problems import did_you_mean
from klamm.testing.admin import Admin
from klamm.testing.outcomes import check_error
from klamm.wire.messages.create_acls import AclCreation, CreateAclsRequest
from klamm.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from klamm.wire.messages.describe_acls import DescribeAclsRequest

OperationName: TypeAlias = Literal[
    "ALL",
    "READ",
    "WRITE",
    "CREATE",
    "DELETE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
    "CREATE_TOKENS",
    "DESCRIBE_TOKENS",
    "TWO_PHASE_COMMIT",
]
ResourceTypeName: TypeAlias = Literal["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"]

_VERSION: Final = 2
_USER: Final = "User:"
_Named = TypeVar("_Named", bound=Enum)


class Acls:
    """The ACLs of a server whose listeners have the authorizer `acl`.

    A user is a name, e.g. `alice`, or `*` for all users. The methods raise KafkaError, e.g. SECURITY_DISABLED, and
    ValueError for an unknown operation or type.
    """

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def allow(
        self,
        user: str,
        operation: OperationName,
        resource_type: ResourceTypeName,
        name: str,
        *,
        prefix: bool = False,
        host: str = WILDCARD,
    ) -> AclBinding:
        """Allow an operation to a user, e.g. `allow("alice", "READ", "TOPIC", "orders")`; return the rule.

        With `prefix`, the rule applies to all resources whose names begin with the name.
        """
        return self._add(AclPermission.ALLOW, user, operation, resource_type, name, prefix, host)

    def deny(
        self,
        user: str,
        operation: OperationName,
        resource_type: ResourceTypeName,
        name: str,
        *,
        prefix: bool = False,
        host: str = WILDCARD,
    ) -> AclBinding:
        """Deny an operation to a user, even if another rule allows it. The arguments are those of `allow`."""
        return self._add(AclPermission.DENY, user, operation, resource_type, name, prefix, host)

    def all(self, user: str | None = None) -> list[AclBinding]:
        """Return the existing rules in order: all, or those that name the user."""
        response = self._admin.call(DescribeAclsRequest(*_filter(user)), _VERSION)
        check_error(response.error_code, response.error_message)
        return sorted(
            AclBinding(
                ResourceType(resource.resource_type),
                resource.resource_name,
                PatternType(resource.pattern_type),
                rule.principal,
                rule.host,
                AclOperation(rule.operation),
                AclPermission(rule.permission_type),
            )
            for resource in response.resources
            for rule in resource.acls
        )

    def remove(self, *bindings: AclBinding) -> None:
        """Remove rules that `allow`, `deny` or `all` have returned."""
        self._delete([DeleteAclsFilter(*astuple(one)) for one in bindings])

    def clear(self, user: str | None = None) -> None:
        """Remove all rules, or those that name the user."""
        self._delete([DeleteAclsFilter(*_filter(user))])

    def _add(
        self, permission: AclPermission, user: str, operation: str, kind: str, name: str, prefix: bool, host: str
    ) -> AclBinding:
        binding = AclBinding(
            _member(ResourceType, kind, "resource type"),
            name,
            PatternType.PREFIXED if prefix else PatternType.LITERAL,
            _USER + user,
            host,
            _member(AclOperation, operation, "operation"),
            permission,
        )
        (result,) = self._admin.call(CreateAclsRequest([AclCreation(*astuple(binding))]), _VERSION).results
        check_error(result.error_code, result.error_message)
        return binding

    def _delete(self, filters: list[DeleteAclsFilter]) -> None:
        if filters:
            for result in self._admin.call(DeleteAclsRequest(filters), _VERSION).filter_results:
                check_error(result.error_code, result.error_message)


def _filter(user: str | None) -> tuple[Any, ...]:
    principal = None if user is None else _USER + user
    return (ResourceType.ANY, None, PatternType.ANY, principal, None, AclOperation.ANY, AclPermission.ANY)


def _member(kind: type[_Named], name: str, what: str) -> _Named:
    found = kind.__members__.get(name.upper())
    if found is None:
        raise ValueError(f'there is no {what} "{name}"{did_you_mean(name, kind.__members__)}')
    return found
