"""`SaslState`: the states of one client's authentication, and the transitions between them, for `authenticator`."""

from __future__ import annotations

import enum
from typing import Final

from klamm.runtime import IllegalTransitionError


class SaslState(enum.Enum):
    """Kafka's `SaslServerAuthenticator.SaslState`, with EVALUATING for checks on another thread, and REVOKED.

    ```
    INITIAL_REQUEST ─► HANDSHAKE_OR_VERSIONS_REQUEST ──ApiVersions─► HANDSHAKE_REQUEST
     (first frame)                │ SaslHandshake                        │ SaslHandshake
                                  ▼                                      ▼
    REAUTH_PROCESS_HANDSHAKE ─► AUTHENTICATE ◄──challenge── EVALUATING
        ▲        │                │     └────────task────────►   │
        │        │                ▼ success                      ▼ success
        └────────┼──SaslHandshake── COMPLETE ◄───────────────────┘
                 ▼                     │ the proof does not count any more
        REAUTH_BAD_MECHANISM ─► FAILED ◄─ REVOKED      (every state but COMPLETE may end in FAILED, which is final)
    ```
    """

    INITIAL_REQUEST = enum.auto()
    HANDSHAKE_OR_VERSIONS_REQUEST = enum.auto()
    HANDSHAKE_REQUEST = enum.auto()
    AUTHENTICATE = enum.auto()
    EVALUATING = enum.auto()
    COMPLETE = enum.auto()
    FAILED = enum.auto()
    REAUTH_PROCESS_HANDSHAKE = enum.auto()
    REAUTH_BAD_MECHANISM = enum.auto()
    REVOKED = enum.auto()


_S = SaslState
TRANSITIONS: Final[dict[SaslState, frozenset[SaslState]]] = {
    _S.INITIAL_REQUEST: frozenset({_S.HANDSHAKE_OR_VERSIONS_REQUEST, _S.FAILED}),
    _S.HANDSHAKE_OR_VERSIONS_REQUEST: frozenset({_S.HANDSHAKE_REQUEST, _S.AUTHENTICATE, _S.FAILED}),
    _S.HANDSHAKE_REQUEST: frozenset({_S.AUTHENTICATE, _S.FAILED}),
    _S.AUTHENTICATE: frozenset({_S.EVALUATING, _S.COMPLETE, _S.FAILED}),
    _S.EVALUATING: frozenset({_S.AUTHENTICATE, _S.COMPLETE, _S.FAILED}),
    _S.COMPLETE: frozenset({_S.REAUTH_PROCESS_HANDSHAKE, _S.REVOKED}),
    _S.REAUTH_PROCESS_HANDSHAKE: frozenset({_S.AUTHENTICATE, _S.REAUTH_BAD_MECHANISM, _S.FAILED}),
    _S.REAUTH_BAD_MECHANISM: frozenset({_S.FAILED}),
    _S.REVOKED: frozenset({_S.FAILED}),
    _S.FAILED: frozenset(),
}


def moved(now: SaslState, to: SaslState) -> SaslState:
    """Return the state `to`. Raises IllegalTransitionError if `TRANSITIONS` does not allow the change."""
    if to not in TRANSITIONS[now]:
        raise IllegalTransitionError(f"{now.name} to {to.name}")
    return to
