"""What an authorizer implements: may this principal do that to this resource? After Kafka's interface `Authorizer`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from klamm.api.acl import AclBinding, AclBindingFilter, AclOperation, ResourceType
from klamm.api.part import ListenerPart
from klamm.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from klamm.api.context import RequestContext


class Authorizer(ListenerPart, ABC):
    """Says what a client may do. Asked per request by handler sets, through `RequestContext.authorize`.

    Called from processors and request handlers at once, and must not block. One that raises denies, and is logged.
    Those that keep rules also implement `acls`, `create_acls` and `delete_acls`; these may block.
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

        `log_if_denied` is False where nothing was asked for by name, e.g. in a list that is filtered.
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
        """Add rules durably; per rule what went wrong. Raises KafkaError."""
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "this authorizer keeps no ACLs")

    def delete_acls(self, filters: Sequence[AclBindingFilter]) -> list[Collection[AclBinding] | KafkaError]:
        """Take rules away durably; per filter those that are gone. Raises KafkaError."""
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "this authorizer keeps no ACLs")
