"""The contract of authorizers, which grant or deny operations on resources; it follows Kafka's `Authorizer`."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from klamm.api.acl import AclBinding, AclBindingFilter, AclOperation, ResourceType, Verdict
from klamm.api.context import RequestContext
from klamm.api.filters import Release
from klamm.api.part import ListenerPart
from klamm.shared.tables import SharedState
from klamm.wire.errors import ErrorCode, KafkaError

Bindings: TypeAlias = "Collection[AclBinding] | None"


class Authorizer(ListenerPart, ABC):
    """Grants or denies each operation of a client. Handler sets call it through `RequestContext.authorize`.

    Processor and handler threads call it concurrently, so it must not block. If it raises, the operation is denied and
    the exception is logged. An authorizer that stores ACLs also implements `acls`, `create_acls` and `delete_acls`;
    these may block. `prepare_max_ms` is the time that a request waits for `prepare`.
    """

    prepare_max_ms = 2_000

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
        """Return True if the request's principal may perform the operation on the resource from the client's address.

        `log_if_denied` is False if the client did not name the resource, e.g. when a list is filtered.
        """

    def decide(
        self,
        context: RequestContext,
        operation: AclOperation,
        resource_type: ResourceType,
        resource_name: str,
        *,
        log_if_denied: bool = True,
    ) -> Verdict:
        """Decide as `authorize` does, and return the reason with the decision. `RequestContext` calls this method.

        The default calls `authorize` and gives no reason. The audit records the reason.
        """
        return Verdict(self.authorize(context, operation, resource_type, resource_name, log_if_denied=log_if_denied))

    def prepare(self, context: RequestContext, resources: Collection[tuple[ResourceType, str]]) -> Release | None:
        """Start to decide about the resources that a request names, before its handler runs; must not block.

        Return None if `authorize` can decide at once. Otherwise return a `Release`. The request waits for the release,
        without a thread, for at most `prepare_max_ms`. Then its handler runs, released or not. Called only if the class
        overrides it; not for ApiVersions and SASL requests.
        """
        return None

    @abstractmethod
    def authorize_by_resource_type(
        self, context: RequestContext, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Return True if the principal may perform the operation on at least one resource of the type (KIP-679)."""

    def acls(self, wanted: AclBindingFilter) -> Collection[AclBinding]:
        """Return the ACLs that match. Raises KafkaError."""
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "this authorizer keeps no ACLs")

    def create_acls(self, bindings: Sequence[AclBinding]) -> list[KafkaError | None]:
        """Add ACLs durably; return an error or None for each. Raises KafkaError if none can be added."""
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "this authorizer keeps no ACLs")

    def delete_acls(self, filters: Sequence[AclBindingFilter]) -> list[Collection[AclBinding] | KafkaError]:
        """Delete ACLs durably; return the deleted ACLs of each filter, or its error.

        Raises KafkaError if none can be deleted.
        """
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "this authorizer keeps no ACLs")


class ClusterAcls:
    """The ACLs of the cluster that a handler set forwards to, for the authorizers of its listeners.

    The handler set fetches the ACLs and calls `replace`; authorizers call `watch`. Any thread may call either.
    `bindings` is None while the ACLs are not known. Authorizers then deny everything.
    """

    def __init__(self) -> None:
        # Protects the watchers, and keeps their notifications in order.
        self._lock = threading.Lock()
        self._watchers: list[Callable[[Bindings], object]] = []
        self.bindings: Bindings = None

    @staticmethod
    def of(shared: SharedState, api_set: str) -> ClusterAcls:
        """Return the ACLs of the handler set named `api_set`."""
        return shared.once(f"cluster-acls:{api_set}", ClusterAcls)

    @property
    def is_watched(self) -> bool:
        """Return True if an authorizer watches the ACLs."""
        return bool(self._watchers)

    def watch(self, watcher: Callable[[Bindings], object]) -> Callable[[], None]:
        """Call `watcher(bindings)` now, and after each change, on the thread that calls `replace`.

        Return a function that ends this.
        """
        with self._lock:
            self._watchers.append(watcher)
            watcher(self.bindings)

        def unwatch() -> None:
            with self._lock:
                self._watchers.remove(watcher)

        return unwatch

    def replace(self, bindings: Bindings) -> None:
        """Replace all ACLs with the current ones of the cluster; None if they are not known."""
        with self._lock:
            self.bindings = bindings
            for watcher in self._watchers:
                watcher(bindings)
