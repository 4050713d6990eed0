"""`Questions`: requests of the gateway itself to the nodes of the cluster, on a thread that may wait."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from klamm import RateLimitedLog
from klamm_gateway.layout import Cluster
from klamm_gateway.upstream.conversation import Conversation
from klamm_gateway.upstream.security import Security
from klamm_gateway.upstream.states import UpstreamError

log = logging.getLogger("klamm.gateway")

SOFTWARE: Final = "klamm-gateway"
"""The gateway's name in requests to the nodes: the client id and the software name (KIP-511)."""
T = TypeVar("T")
Address = tuple[str, int]


class Questions:
    """The sender of the gateway's own requests. One thread uses it. Failures are logged, and counted by their reason.
    `timeout_s` is the timeout of one conversation.
    """

    def __init__(
        self,
        cluster: Cluster,
        bootstrap: Iterable[Address],
        security: Callable[[], Security],
        timeout_s: float,
        failures: tuple[RateLimitedLog, Callable[[str], None]],
    ) -> None:
        self._cluster = cluster
        self._bootstrap = tuple(bootstrap)
        self._security = security
        self._timeout_s = timeout_s
        self._failure_log, self._count_failure = failures
        self._answered_last: tuple[Address, ...] = ()

    def ask_any(self, question: Callable[[Conversation], T], ending: threading.Event) -> T | None:
        """Ask the node that answered last, then the other known nodes, then those of `bootstrap`, until one answers.
        Return None if no node answers, or if `ending` is set.
        """
        known = [(node.host, node.port) for node in self._cluster.layout.nodes.values()]
        # A node that does not answer costs the whole timeout. So the node that answered last is asked first.
        first = [each for each in self._answered_last if each in known]
        for address in dict.fromkeys((*first, *known, *self._bootstrap)):
            if ending.is_set():
                return None
            found = self.ask(address, question)
            if found is not None:
                self._answered_last = (address,)
                return found
        return None

    def ask(self, address: Address, question: Callable[[Conversation], T]) -> T | None:
        """Ask one node. Return None if it does not answer."""
        where = f"{address[0]}:{address[1]}"
        try:
            with Conversation(*address, self._security(), SOFTWARE, self._timeout_s) as conversation:
                return question(conversation)
        except UpstreamError as error:
            self.failed(where, error)
        except TimeoutError as error:
            self.failed(where, UpstreamError("timeout", str(error)))
        except OSError as error:
            self.failed(where, UpstreamError("connection_failed", error.strerror or str(error)))
        return None

    def failed(self, where: str, error: UpstreamError) -> None:
        """Log and count a failure."""
        self._count_failure(error.reason)
        self._failure_log.log(where, logging.WARNING, "node %s cannot be queried: %s: %s", where, error.reason, error)
