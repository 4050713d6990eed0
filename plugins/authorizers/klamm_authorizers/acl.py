"""The authorizer `acl`: Kafka's ACLs, in a shared table that the admin APIs write. Follows `StandardAuthorizer`.

klamm calls it on any thread that handles requests, and on the thread of whatever changed the rules' table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from klamm import ErrorCode, KafkaError, ListenerContext
from klamm.acl import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    ClusterAcls,
    PatternType,
    ResourceType,
)
from klamm.shared import Table
from klamm_authorizers.authorizer_settings import AclSettings
from klamm_authorizers.authorizing import IndexAuthorizer
from klamm_authorizers.index import AclIndex
from klamm_authorizers.rules import check_host

TABLE: Final = "acls"
_COLUMNS: Final = (
    "resource_type",
    "resource_name",
    "pattern_type",
    "principal",
    "host",
    "operation",
    "permission",
)


class AclAuthorizer(IndexAuthorizer):
    """The authorizer `acl` of one listener. Each listener has its own settings; all listeners share the rules."""

    def __init__(self, settings: AclSettings) -> None:
        super().__init__(settings)
        self._is_clusters = settings.rules == "cluster"
        self._table: Table
        self._unwatch: Callable[[], None]

    def open(self, listener: ListenerContext) -> None:
        """Load the rules from their table or from the gateway's cluster, and follow their changes.

        Raises KafkaError.
        """
        super().open(listener)
        if self._is_clusters:
            self._unwatch = ClusterAcls.of(listener.services.shared, listener.api_set).watch(self._take)
            return
        self._table = listener.services.shared.table(TABLE)
        self._unwatch = self._table.watch(self._on_changes)
        # Another thread may change the table while this one builds the index, and then updates the old index: build
        # again.
        while self._rebuild() is not self._table.rows:
            pass

    def close(self) -> None:
        self._unwatch()

    def reconfigure(self, settings: AclSettings) -> bool:
        """Apply new settings at once, except for `rules`."""
        if (settings.rules == "cluster") != self._is_clusters:
            return False
        self._use(settings)
        return True

    def _take(self, bindings: Collection[AclBinding] | None) -> None:
        if bindings is not None:
            self.index = AclIndex(bindings)
        self.is_known = bindings is not None

    def _rebuild(self) -> Mapping[str, Mapping[str, Any]]:
        rows = self._table.rows
        self.index = AclIndex(_binding(row) for row in rows.values())
        return rows

    def _on_changes(self, changes: Mapping[str, Mapping[str, Any] | None]) -> None:
        if len(changes) > len(self.index):
            self._rebuild()
            return
        for key, row in changes.items():
            if row is None:
                self.index.remove(_binding_of_key(key))
            else:
                self.index.add(_binding(row))

    def acls(self, wanted: AclBindingFilter) -> list[AclBinding]:
        return sorted(binding for binding in self.index.bindings() if matches(wanted, binding))

    def create_acls(self, bindings: Sequence[AclBinding]) -> list[KafkaError | None]:
        if self._is_clusters:
            return super().create_acls(bindings)
        problems = [_problem(binding) for binding in bindings]
        valid = [binding for binding, problem in zip(bindings, problems, strict=True) if problem is None]
        if valid:
            self._table.update({_key(binding): _row(binding) for binding in valid})
        return problems

    def delete_acls(self, filters: Sequence[AclBindingFilter]) -> list[Collection[AclBinding] | KafkaError]:
        if self._is_clusters:
            return super().delete_acls(filters)
        found: list[Collection[AclBinding] | KafkaError] = []

        def delete(_rows: Mapping[str, Mapping[str, Any]]) -> dict[str, None]:
            # `modify` holds the table's lock, so the index has the same rules as the table.
            found[:] = [self.acls(wanted) for wanted in filters]
            return {_key(binding): None for each in found if not isinstance(each, KafkaError) for binding in each}

        self._table.modify(delete)
        return found


def matches(wanted: AclBindingFilter, binding: AclBinding) -> bool:
    """Return True if a filter matches a rule: Kafka's `ResourcePatternFilter` and `AccessControlEntryFilter`."""
    return (
        wanted.resource_type in (ResourceType.ANY, binding.resource_type)
        and _matches_pattern(wanted, binding)
        and wanted.principal in (None, binding.principal)
        and wanted.host in (None, binding.host)
        and wanted.operation in (AclOperation.ANY, binding.operation)
        and wanted.permission in (AclPermission.ANY, binding.permission)
    )


def _matches_pattern(wanted: AclBindingFilter, binding: AclBinding) -> bool:
    pattern_type, name = wanted.pattern_type, wanted.resource_name
    if pattern_type not in (PatternType.ANY, PatternType.MATCH, binding.pattern_type):
        return False
    if name is None:
        return True
    if pattern_type is not PatternType.MATCH:
        return name == binding.resource_name
    if binding.pattern_type is PatternType.LITERAL:
        return binding.resource_name in (name, WILDCARD)
    return name.startswith(binding.resource_name)


def _problem(binding: AclBinding) -> KafkaError | None:
    """Return the error with which Kafka (`AclApis`, `AclControlManager.validateNewAcl`) refuses a binding, or None."""
    try:
        _check(binding)
    except ValueError as error:
        return KafkaError(ErrorCode.INVALID_REQUEST, str(error))
    return None


def _check(binding: AclBinding) -> None:
    if binding.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        raise ValueError(f"Invalid resourceType {binding.resource_type.name}")
    if binding.resource_type is ResourceType.CLUSTER and binding.resource_name != CLUSTER_NAME:
        raise ValueError(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not binding.resource_name:
        raise ValueError("Invalid empty resource name")
    if binding.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise ValueError(f"Invalid patternType {binding.pattern_type.name}")
    if binding.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        raise ValueError(f"Invalid operation {binding.operation.name}")
    if binding.permission not in (AclPermission.ALLOW, AclPermission.DENY):
        raise ValueError(f"Invalid permissionType {binding.permission.name}")
    if ":" not in binding.principal:
        raise ValueError(
            f"Could not parse principal from `{binding.principal}` (no colon is present separating the principal type"
            " from the principal name)"
        )
    if not binding.host:
        raise ValueError("Host pattern cannot be null or empty")
    if "/" in binding.host:
        check_host(binding.host)


def _key(binding: AclBinding) -> str:
    return json.dumps(list(_row(binding).values()))


def _binding_of_key(key: str) -> AclBinding:
    return _binding(dict(zip(_COLUMNS, json.loads(key), strict=True)))


def _row(binding: AclBinding) -> dict[str, Any]:
    return {
        "resource_type": binding.resource_type.name,
        "resource_name": binding.resource_name,
        "pattern_type": binding.pattern_type.name,
        "principal": binding.principal,
        "host": binding.host,
        "operation": binding.operation.name,
        "permission": binding.permission.name,
    }


def _binding(row: Mapping[str, Any]) -> AclBinding:
    return AclBinding(
        ResourceType[row["resource_type"]],
        row["resource_name"],
        PatternType[row["pattern_type"]],
        row["principal"],
        row["host"],
        AclOperation[row["operation"]],
        AclPermission[row["permission"]],
    )
