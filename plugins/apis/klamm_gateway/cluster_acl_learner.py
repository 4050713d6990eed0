"""`ClusterAclLearner`: a thread that requests the ACLs of the cluster, for authorizers with `acl.rules = "cluster"`.

It sends DescribeAcls with the gateway's own account, which needs DESCRIBE on the cluster. Rules are valid for
`max_age_s` from the request on. If the gateway cannot interpret a rule like Kafka does, all rules become unknown, and
authorizers deny all requests.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from klamm.acl import AclBinding, AclOperation, AclPermission, ClusterAcls, PatternType, ResourceType
from klamm.runtime import Scheduler, Timer
from klamm.wire.errors import ErrorCode
from klamm.wire.messages import describe_acls
from klamm.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from klamm_gateway.upstream.conversation import Conversation
from klamm_gateway.upstream.questions import Questions

log = logging.getLogger("klamm.gateway")

_DESCRIBE_ACLS: Final = 1
_ANY: Final = 1
_ALL_RULES: Final = DescribeAclsRequest(_ANY, None, _ANY, None, None, _ANY, _ANY)
_RESOURCE_TYPES: Final = frozenset(map(int, ResourceType)) - {ResourceType.UNKNOWN, ResourceType.ANY}
_OPERATIONS: Final = frozenset(map(int, AclOperation)) - {AclOperation.UNKNOWN, AclOperation.ANY}


class ClusterAclLearner:
    """The learner of a cluster's ACLs. `learn_once` sends the request; the thread calls it twice in `max_age_s`."""

    def __init__(
        self,
        acls: ClusterAcls,
        questions: Questions,
        scheduler: Scheduler,
        max_age_s: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._acls = acls
        self._questions = questions
        self._scheduler = scheduler
        self._max_age_s = max_age_s
        self._now = now
        # Protects the timer, because new rules may arrive while old ones expire.
        self._lock = threading.Lock()
        self._expiry: Timer | None = None
        self._ending = threading.Event()
        self.tried = threading.Event()
        """Set after the first request."""
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread. A second call does nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="klamm-gateway-acls", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop the thread. An attempt to connect goes on until its timeout."""
        self._ending.set()
        with self._lock:
            self._cancel()

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                self.learn_once()
            except Exception:
                log.exception("the ACLs of the cluster cannot be read: nothing is allowed")
                self._forget()
            self.tried.set()
            self._ending.wait(self._max_age_s / 2)

    def learn_once(self) -> None:
        """Request the ACLs. If no node answers, known rules stay valid until they expire.

        Raises ValueError for values that klamm does not know.
        """
        asked_at = self._now()
        response = self._questions.ask_any(_described, self._ending)
        if response is None:
            return
        if response.error_code:
            reason = ErrorCode(response.error_code).name
            log.warning("the cluster refuses to return its ACLs: %s: nothing is allowed", reason)
            self._forget()
            return
        bindings = frozenset(_bindings(response))
        with self._lock:
            left_s = self._max_age_s - (self._now() - asked_at)
            if left_s <= 0 or self._ending.is_set():
                return
            self._cancel()
            if bindings != self._acls.bindings:
                self._acls.replace(bindings)
            self._expiry = self._scheduler.schedule(left_s * 1000, self._expire)

    def _expire(self) -> None:
        log.warning("the ACLs of the cluster are older than %g s: nothing is allowed", self._max_age_s)
        self._forget()

    def _forget(self) -> None:
        with self._lock:
            self._cancel()
            if self._acls.bindings is not None:
                self._acls.replace(None)

    def _cancel(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None


def _described(conversation: Conversation) -> DescribeAclsResponse:
    response: DescribeAclsResponse = conversation.call(_ALL_RULES, _DESCRIBE_ACLS, describe_acls)
    return response


def _bindings(response: DescribeAclsResponse) -> list[AclBinding]:
    """Return the rules. Raises ValueError for a pattern or a permission that klamm does not know."""
    return [
        AclBinding(
            ResourceType(resource.resource_type),
            resource.resource_name,
            PatternType(resource.pattern_type),
            acl.principal,
            acl.host,
            AclOperation(acl.operation),
            AclPermission(acl.permission_type),
        )
        for resource in response.resources
        for acl in resource.acls
        # Rules with unknown types and operations are left out, because no request needs them. Rules with a network as
        # host are left out too, because Kafka takes it for the name of a host.
        if resource.resource_type in _RESOURCE_TYPES and acl.operation in _OPERATIONS and "/" not in acl.host
    ]
