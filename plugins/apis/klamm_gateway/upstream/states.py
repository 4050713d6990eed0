"""The states of a connection to a node, and the allowed transitions."""

from __future__ import annotations

import enum
from typing import Final


class UpstreamState(enum.Enum):
    """The state of a connection to a node.

    ```
    CONNECTING ──► HANDSHAKE ──► LOGIN ──► READY ──► FINISHING ──► CLOSED
         │           (TLS)       (SASL)     ▲  (queued bytes are sent; no client waits for answers)
         └──────────────────────────────────┘ (any state may end in CLOSED)
    ```
    """

    CONNECTING = enum.auto()
    HANDSHAKE = enum.auto()
    LOGIN = enum.auto()
    READY = enum.auto()
    FINISHING = enum.auto()
    CLOSED = enum.auto()


_S = UpstreamState
TRANSITIONS: Final[dict[UpstreamState, frozenset[UpstreamState]]] = {
    _S.CONNECTING: frozenset({_S.HANDSHAKE, _S.LOGIN, _S.READY, _S.CLOSED}),
    _S.HANDSHAKE: frozenset({_S.LOGIN, _S.READY, _S.CLOSED}),
    _S.LOGIN: frozenset({_S.READY, _S.CLOSED}),
    _S.READY: frozenset({_S.FINISHING, _S.CLOSED}),
    _S.FINISHING: frozenset({_S.CLOSED}),
    _S.CLOSED: frozenset(),
}


class UpstreamError(Exception):
    """Raised if a connection to a node cannot be used. `reason` is a metric label: few values, lower_snake_case."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
