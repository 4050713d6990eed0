"""`DelegationTokens`: create, renew and expire delegation tokens (KIP-48, KIP-373).

Follows Kafka's `DelegationTokenControlManager` and `DelegationTokenManager`. A token's secret is the HMAC-SHA-512 of
its id under the server's key. The secret itself is not stored. The shared table `delegation_tokens` stores the SCRAM
credentials derived from it, and a fingerprint of the key. If the key changes, older tokens are invalid.
"""

from __future__ import annotations

import base64
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from klamm import ErrorCode, KafkaError, KafkaPrincipal, RequestContext
from klamm.runtime import Clock
from klamm.sasl import DELEGATION_TOKENS, DelegationToken, DelegationTokenCache, ScramCredential, ScramMechanism
from klamm.shared import SharedState
from klamm_broker.broker_settings import BrokerSettings

USER_TYPE: Final = "User"
_SALT_BYTES: Final = 24
_HMAC: Final = ScramMechanism.SCRAM_SHA_512.hmac


class DelegationTokens:
    """All tokens of one server. Thread safe. Times are milliseconds since the epoch."""

    def __init__(
        self,
        settings: BrokerSettings,
        key: bytes,
        shared: SharedState,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._key = key
        self._fingerprint = _HMAC(key, b"fingerprint").hex()[:16]
        self._max_lifetime_ms = settings.delegation_token_max_lifetime_ms
        self._expiry_time_ms = settings.delegation_token_expiry_time_ms
        self._max_per_owner = settings.delegation_token_max_per_owner
        self._clock = clock
        self._random_bytes = random_bytes
        self._table = shared.table(DELEGATION_TOKENS)
        self._cache = shared.once(DELEGATION_TOKENS, DelegationTokenCache)
        # Protects the tokens. A thread that changes a token holds it from the check until the change is made.
        self._lock = threading.Lock()
        self._ids: dict[bytes, str] = {}
        self._counts: Counter[KafkaPrincipal] = Counter()

    def load(self) -> None:
        """Load the tokens that were created with the current key."""
        tokens = {
            token_id: _from_row(token_id, row)
            for token_id, row in self._table.rows.items()
            if row["key_fingerprint"] == self._fingerprint
        }
        self._ids = {self.hmac_of(token_id): token_id for token_id in tokens}
        self._cache.tokens = tokens
        self._counts = _by_owner(tokens)

    def hmac_of(self, token_id: str) -> bytes:
        """Return the secret of a token; in base64 it is the password of a client that logs in with the token."""
        return _HMAC(self._key, token_id.encode())

    def create(
        self,
        owner: KafkaPrincipal,
        requester: KafkaPrincipal,
        renewers: Iterable[KafkaPrincipal],
        max_lifetime_ms: int,
    ) -> DelegationToken:
        """Create a token durably and return it. Takes some milliseconds.

        Raises KafkaError: POLICY_VIOLATION if `delegation.token.max.per.owner` or
        `delegation.token.max.bytes` is exceeded.
        """
        with self._lock:
            self._require_room(owner)
        now_ms = self._clock.wall_ms()
        lifetime_ms = min(self._max_lifetime_ms, max_lifetime_ms) if max_lifetime_ms > 0 else self._max_lifetime_ms
        # The first bit is zero, so no id begins with a dash: a command line would take such an id for an option.
        first, *others = self._random_bytes(16)
        token_id = base64.urlsafe_b64encode(bytes([first & 0x7F, *others])).decode().rstrip("=")
        secret = self.hmac_of(token_id)
        password = base64.b64encode(secret).decode()
        token = DelegationToken(
            token_id,
            owner,
            requester,
            tuple(renewers),
            now_ms,
            min(now_ms + lifetime_ms, now_ms + self._expiry_time_ms),
            now_ms + lifetime_ms,
            {
                mechanism: ScramCredential.from_password(mechanism, password, self._random_bytes(_SALT_BYTES))
                for mechanism in ScramMechanism
            },
        )
        with self._lock:
            # Other tokens may have been created meanwhile.
            self._require_room(owner)
            self._put(token)
            self._ids[secret] = token_id
            self._counts[owner] += 1
        return token

    def _require_room(self, owner: KafkaPrincipal) -> None:
        if self._counts[owner] >= self._max_per_owner:
            self._remove_expired(self._clock.wall_ms())
        if self._counts[owner] >= self._max_per_owner:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"{owner} already has {self._max_per_owner} delegation tokens, the maximum"
            )

    def renew(self, secret: bytes, principal: KafkaPrincipal, renew_period_ms: int) -> int:
        """Extend a token. Return its new expiry. Raises KafkaError."""
        with self._lock:
            token = self._of(secret, principal)
            period_ms = min(self._expiry_time_ms, renew_period_ms) if renew_period_ms > 0 else self._expiry_time_ms
            expiry_ms = min(token.max_timestamp_ms, self._clock.wall_ms() + period_ms)
            self._put(replace(token, expiry_timestamp_ms=expiry_ms))
        return expiry_ms

    def expire(self, secret: bytes, principal: KafkaPrincipal, expiry_time_period_ms: int) -> int:
        """Set the expiry of a token; a negative period means at once. Return the new expiry. Raises KafkaError."""
        with self._lock:
            token = self._of(secret, principal)
            if expiry_time_period_ms < 0:
                self._remove({token.token_id})
                return self._clock.wall_ms()
            expiry_ms = min(token.max_timestamp_ms, self._clock.wall_ms() + expiry_time_period_ms)
            self._put(replace(token, expiry_timestamp_ms=expiry_ms))
        return expiry_ms

    def all(self) -> Collection[DelegationToken]:
        """Return all tokens."""
        return self._cache.tokens.values()

    @property
    def most_of_one_owner(self) -> int:
        """Return the number of tokens of the owner that has the most."""
        return max(list(self._counts.values()), default=0)

    def __len__(self) -> int:
        return len(self._ids)

    def remove_expired(self, now_ms: int) -> None:
        """Remove expired tokens."""
        with self._lock:
            self._remove_expired(now_ms)

    def _remove_expired(self, now_ms: int) -> None:
        expired = {one.token_id for one in self._cache.tokens.values() if one.expiry_timestamp_ms < now_ms}
        if expired:
            self._remove(expired)

    def _of(self, secret: bytes, principal: KafkaPrincipal) -> DelegationToken:
        token = self._cache.tokens.get(self._ids.get(secret, ""))
        if token is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        now_ms = self._clock.wall_ms()
        if token.max_timestamp_ms < now_ms or token.expiry_timestamp_ms < now_ms:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        if principal != token.owner and principal not in token.renewers:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        return token

    def _put(self, token: DelegationToken) -> None:
        self._table.update({token.token_id: {**_to_row(token), "key_fingerprint": self._fingerprint}})
        self._cache.tokens = {**self._cache.tokens, token.token_id: token}

    def _remove(self, token_ids: set[str]) -> None:
        self._table.update(dict.fromkeys(token_ids))
        self._cache.tokens = {key: token for key, token in self._cache.tokens.items() if key not in token_ids}
        self._ids = {secret: token_id for secret, token_id in self._ids.items() if token_id not in token_ids}
        self._counts = _by_owner(self._cache.tokens)


def require_token_requests(context: RequestContext) -> None:
    """Raise KafkaError(DELEGATION_TOKEN_REQUEST_NOT_ALLOWED) if the client has logged in with a token, or is anonymous.

    Clients of a PLAINTEXT listener are anonymous.
    """
    principal, protocol = context.principal, context.listener.security_protocol
    anonymous = protocol == "PLAINTEXT" or (protocol == "SSL" and principal.name == "ANONYMOUS")
    if principal.token_authenticated or anonymous:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def new_expiry(context: RequestContext, change: Callable[[], int]) -> tuple[ErrorCode, int]:
    """Return the response to a request that changes a token's expiry: an error code, and the new expiry in
    milliseconds.

    The expiry is -1 if the client may not change it, or if `change` raises KafkaError.
    """
    try:
        require_token_requests(context)
        return ErrorCode.NONE, change()
    except KafkaError as error:
        return error.error_code, -1


def _by_owner(tokens: Mapping[str, DelegationToken]) -> Counter[KafkaPrincipal]:
    return Counter(token.owner for token in tokens.values())


def _to_row(token: DelegationToken) -> dict[str, Any]:
    return {
        "owner": [token.owner.type, token.owner.name],
        "requester": [token.requester.type, token.requester.name],
        "renewers": [[renewer.type, renewer.name] for renewer in token.renewers],
        "issue_timestamp_ms": token.issue_timestamp_ms,
        "expiry_timestamp_ms": token.expiry_timestamp_ms,
        "max_timestamp_ms": token.max_timestamp_ms,
        "credentials": [credential.to_row() for credential in token.credentials.values()],
    }


def _from_row(token_id: str, row: Mapping[str, Any]) -> DelegationToken:
    credentials = [ScramCredential.from_row(each) for each in row["credentials"]]
    return DelegationToken(
        token_id,
        _principal(row["owner"]),
        _principal(row["requester"]),
        tuple(_principal(each) for each in row["renewers"]),
        row["issue_timestamp_ms"],
        row["expiry_timestamp_ms"],
        row["max_timestamp_ms"],
        {credential.mechanism: credential for credential in credentials},
    )


def _principal(pair: list[str]) -> KafkaPrincipal:
    return KafkaPrincipal(pair[1], pair[0])
