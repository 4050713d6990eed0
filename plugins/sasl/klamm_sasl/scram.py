"""The mechanisms SCRAM-SHA-256 and SCRAM-SHA-512: RFC 5802, RFC 7677, KIP-84, and delegation tokens (KIP-48).

A processor's thread runs the exchange. Only a lookup in a store that blocks runs on a thread for checks.
"""

from __future__ import annotations

import base64
import binascii
import enum
import functools
import hmac
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from klamm import ConnectionContext, KafkaPrincipal, ServerServices, TransportLayer, clipped
from klamm.runtime import Timer
from klamm.sasl import (
    DELEGATION_TOKENS,
    DelegationTokenCache,
    SaslAuthenticationError,
    SaslChallenge,
    SaslContext,
    SaslError,
    SaslEvaluation,
    SaslMechanism,
    SaslProof,
    SaslServer,
    SaslSuccess,
    SaslTask,
    ScramCredential,
    ScramMechanism,
)
from klamm_sasl.credentials import Credentials

_NAME: Final = r"(?:[^\x00=,]|=2C|=3D)+"
_PRINTABLE: Final = r"[\x21-\x2B\x2D-\x7E]+"
_EXTENSIONS: Final = r"(?:,[A-Za-z]+=[^\x00,]+)*"
_BASE64: Final = r"[A-Za-z0-9+/]*={0,2}"
_CLIENT_FIRST: Final = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<authzid>{_NAME}))?,)(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})"
    rf"(?P<extensions>{_EXTENSIONS}))"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<unproved>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_NONCE_BYTES: Final = 24
_REPEATED_NONCE: Final = (
    "the client nonce is repeated in the client final message: a bug of librdkafka before 2.6.1 (kcat of Debian 12,"
    " older confluent-kafka), which Apache Kafka 4 refuses too; update the client"
)
_TOKEN_AUTH: Final = "tokenauth"  # noqa: S105


class _State(enum.Enum):
    """RECEIVE_CLIENT_FIRST ─► RECEIVE_CLIENT_FINAL ─► ENDED; Kafka's `ScramSaslServer.State`."""

    RECEIVE_CLIENT_FIRST = enum.auto()
    RECEIVE_CLIENT_FINAL = enum.auto()
    ENDED = enum.auto()


@dataclass(frozen=True, slots=True)
class _Claim:
    """The principal that the client claims, and its credential, which is a fake one if `real` is False."""

    principal: KafkaPrincipal
    credential: ScramCredential
    real: bool
    expires_ms: int | None = None
    proof: SaslProof | None = None


class ScramServerMechanism(SaslMechanism):
    """The mechanism SCRAM-SHA-256 or SCRAM-SHA-512 of one listener."""

    scram: ClassVar[ScramMechanism]

    def open(self, context: SaslContext) -> None:
        self.services = context.listener.services
        self.credentials = Credentials(context.stores, self.services)
        self.tokens = self.services.shared.once(DELEGATION_TOKENS, DelegationTokenCache)
        self._sessions = context.sessions
        # Protects the timers of expiring tokens.
        self._lock = threading.Lock()
        # By token id: timers for changed tokens that have open sessions.
        self._expiry_timers: dict[str, Timer] = {}
        self._unwatch = self.tokens.watch(self._tokens_changed)

    def close(self) -> None:
        self._unwatch()
        with self._lock:
            for timer in self._expiry_timers.values():
                timer.cancel()

    def _tokens_changed(self, token_ids: Sequence[str]) -> None:
        sessions, clock = self._sessions, self.services.clock
        for token_id in token_ids:
            key = _token_key(token_id)
            with self._lock:
                timer = self._expiry_timers.pop(token_id, None)
                if timer is not None:
                    timer.cancel()
                if not sessions.has(key):
                    continue
                sessions.recheck([key])
                token = self.tokens.tokens.get(token_id)
                if token is not None:
                    # The token may now expire earlier than its sessions know.
                    left_ms = max(0, token.expiry_timestamp_ms - clock.wall_ms())
                    recheck = functools.partial(sessions.recheck, [key])
                    self._expiry_timers[token_id] = self.services.scheduler.schedule(left_ms, recheck)

    def server(self, connection: ConnectionContext, transport: TransportLayer) -> ScramServer:
        return ScramServer(self.scram, self.credentials, self.tokens, self.services)


class ScramSha256(ScramServerMechanism):
    """The mechanism SCRAM-SHA-256."""

    scram = ScramMechanism.SCRAM_SHA_256


class ScramSha512(ScramServerMechanism):
    """The mechanism SCRAM-SHA-512."""

    scram = ScramMechanism.SCRAM_SHA_512


class ScramServer(SaslServer):
    """One exchange. For an unknown user, it makes all steps and fails at the end, as with a wrong password."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        credentials: Credentials,
        tokens: DelegationTokenCache,
        services: ServerServices,
    ) -> None:
        self._mechanism = mechanism
        self._credentials = credentials
        self._tokens = tokens
        self._services = services
        self._state = _State.RECEIVE_CLIENT_FIRST
        self._claim: _Claim
        self._gs2_header = ""
        self._client_nonce = ""
        self._nonce = ""
        self._first_messages = ""

    def evaluate(self, token: bytes) -> SaslEvaluation:
        state, self._state = self._state, _State.ENDED
        try:
            message = token.decode()
        except UnicodeDecodeError as error:
            raise SaslError("a SCRAM message is not UTF-8") from error
        if state is _State.RECEIVE_CLIENT_FIRST:
            return self._client_first(message)
        if state is _State.RECEIVE_CLIENT_FINAL:
            return self._client_final(message)
        raise SaslError("a SCRAM message after the end of the exchange")

    def _client_first(self, message: str) -> SaslEvaluation:
        match = _CLIENT_FIRST.fullmatch(message)
        if match is None:
            raise SaslError("invalid SCRAM client first message")
        user = self.claimed = match["name"].replace("=2C", ",").replace("=3D", "=")
        authzid = match["authzid"]
        if authzid is not None and authzid != match["name"]:
            raise SaslAuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        extensions = dict(part.split("=", 1) for part in match["extensions"].split(",") if part)
        self._gs2_header = match["gs2"]
        self._client_nonce = match["nonce"]
        self._nonce = self._client_nonce + base64.b64encode(self._services.random_bytes(_NONCE_BYTES)).decode()
        bare = match["bare"]
        if extensions.get(_TOKEN_AUTH, "").lower() == "true":
            return self._challenge(bare, self._token_owner(user))
        if self._credentials.blocking:
            return SaslTask(lambda: self._challenge(bare, self._user(user)))
        return self._challenge(bare, self._user(user))

    def _user(self, user: str) -> _Claim:
        found = self._credentials.find(user, self._mechanism)
        fake = self._credentials.fake(user, self._mechanism)
        if found is None:
            return _Claim(KafkaPrincipal(user), fake, False)
        return _Claim(KafkaPrincipal(user), found, True, proof=self._credentials.proof(user, found, self._mechanism))

    def _token_owner(self, token_id: str) -> _Claim:
        token = self._tokens.tokens.get(token_id)
        fake = self._credentials.fake_token(token_id, self._mechanism)
        if token is None or token.expiry_timestamp_ms <= self._services.clock.wall_ms():
            return _Claim(KafkaPrincipal(token_id), fake, False)
        owner = KafkaPrincipal(token.owner.name, token.owner.type, token_authenticated=True)
        proof = SaslProof(_token_key(token_id), lambda: self._token_revoked_because(token_id))
        return _Claim(owner, token.credentials[self._mechanism], True, token.expiry_timestamp_ms, proof)

    def _token_revoked_because(self, token_id: str) -> str | None:
        token = self._tokens.tokens.get(token_id)
        if token is None or token.expiry_timestamp_ms <= self._services.clock.wall_ms():
            return "the delegation token has expired"
        return None

    def _challenge(self, bare: str, claim: _Claim) -> SaslChallenge:
        salt = base64.b64encode(claim.credential.salt).decode()
        server_first = f"r={self._nonce},s={salt},i={claim.credential.iterations}"
        self._claim = claim
        self._first_messages = f"{bare},{server_first},"
        self._state = _State.RECEIVE_CLIENT_FINAL
        return SaslChallenge(server_first.encode())

    def _client_final(self, message: str) -> SaslSuccess:
        match = _CLIENT_FINAL.fullmatch(message)
        if match is None:
            raise SaslError("invalid SCRAM client final message")
        try:
            binding = base64.b64decode(match["binding"], validate=True)
            proof = base64.b64decode(match["proof"], validate=True)
        except binascii.Error as error:
            raise SaslError("invalid base64 in a SCRAM client final message") from error
        if binding != self._gs2_header.encode():
            raise SaslError("the channel binding differs from the first message")
        if not hmac.compare_digest(match["nonce"].encode(), self._nonce.encode()):
            repeated = match["nonce"] == self._client_nonce + self._nonce
            raise SaslError(_REPEATED_NONCE if repeated else "the nonce differs from the server first message")
        mechanism, claim = self._mechanism, self._claim
        auth_message = (self._first_messages + match["unproved"]).encode()
        signature = mechanism.hmac(claim.credential.stored_key, auth_message)
        if len(proof) != len(signature):
            raise SaslError("the proof has the wrong length")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        proved = hmac.compare_digest(mechanism.hash(client_key), claim.credential.stored_key)
        if not proved or not claim.real:
            raise SaslError(f"user {clipped(claim.principal.name)!r}: wrong credentials, or no such user")
        verifier = base64.b64encode(mechanism.hmac(claim.credential.server_key, auth_message)).decode()
        return SaslSuccess(claim.principal, f"v={verifier}".encode(), claim.expires_ms, claim.proof)


def _token_key(token_id: str) -> tuple[str, str]:
    return _TOKEN_AUTH, token_id
