"""Delegation tokens (KIP-48): handler sets create them, the authenticator `sasl` accepts them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from klamm.shared.principal import KafkaPrincipal
from klamm.shared.scram import ScramCredential, ScramMechanism


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """Kafka's `TokenInformation`, and the HMAC of the token: in base64 it is the password.

    Times are milliseconds since the epoch.
    """

    token_id: str
    owner: KafkaPrincipal
    requester: KafkaPrincipal
    renewers: tuple[KafkaPrincipal, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int
    credentials: Mapping[ScramMechanism, ScramCredential] = field(repr=False)

    def owner_or_renewer(self, principal: KafkaPrincipal) -> bool:
        """Return True if the principal may see and renew the token."""
        return principal in (self.owner, self.requester) or principal in self.renewers


class DelegationTokenCache:
    """The valid tokens of a server by id, like Kafka's class of that name.

    `tokens` is an immutable snapshot, which the token manager replaces. All parts of a server share one cache, which
    they get with `shared.once(DELEGATION_TOKENS, …)`.
    """

    def __init__(self) -> None:
        self._tokens: Mapping[str, DelegationToken] = {}
        self._watchers: tuple[Callable[[Sequence[str]], object], ...] = ()

    @property
    def tokens(self) -> Mapping[str, DelegationToken]:
        """Return the current tokens."""
        return self._tokens

    @tokens.setter
    def tokens(self, tokens: Mapping[str, DelegationToken]) -> None:
        before, self._tokens = self._tokens, tokens
        if self._watchers:
            changed = [token_id for token_id, token in before.items() if tokens.get(token_id) is not token]
            for watcher in self._watchers:
                watcher(changed)

    def watch(self, watcher: Callable[[Sequence[str]], object]) -> Callable[[], None]:
        """Call `watcher(token_ids)` after tokens have changed or ended, on the thread of the change.

        `watcher` must not block or raise. Return a function that removes the watcher. Only one thread at a time may
        call `watch` and that function.
        """
        self._watchers = (*self._watchers, watcher)

        def unwatch() -> None:
            self._watchers = tuple(each for each in self._watchers if each != watcher)

        return unwatch
