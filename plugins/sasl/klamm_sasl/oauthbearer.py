"""The mechanism OAUTHBEARER: RFC 7628, KIP-255, KIP-768.

A processor's thread checks most tokens. Only a token with an unknown key waits, for the thread of `JwksKeys`.
"""

from __future__ import annotations

import json
import re
from typing import Final

from klamm import ConnectionContext, KafkaPrincipal, TransportLayer
from klamm.sasl import (
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
)
from klamm_sasl.jwks import JwksKeys, fetcher
from klamm_sasl.sasl_settings import OAuthBearerSettings
from klamm_sasl.tokens import BearerToken, TokenError, TokenValidator, UnknownKeyError

_CLIENT_FIRST: Final = re.compile(
    r"n,(?:a=(?P<authzid>(?:[^\x00=,]|=2C|=3D)+))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7E \t\r\n]+\x01)*)\x01"
)
_SIGNED: Final = ("bearer token",)
"""The key by which `recheck` finds the sessions of signed tokens."""
_AUTH: Final = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_.A-Za-z0-9]+)", re.ASCII)


class OAuthBearerMechanism(SaslMechanism):
    """The mechanism OAUTHBEARER of one listener."""

    settings: OAuthBearerSettings

    def open(self, context: SaslContext) -> None:
        """Read or fetch the keys.

        Raises ValueError if no keys are configured, OSError or JwksError for a file that is not a JWK set. If an
        endpoint does not answer yet, the keys are fetched later. Until then all signed tokens are refused.
        """
        settings, services = self.settings, context.listener.services
        sources = [source for source in (settings.jwks_endpoint_url, settings.jwks_file) if source is not None]
        if len(sources) > 1:
            raise ValueError("jwks_endpoint_url and jwks_file are both set")
        if not sources and not settings.unsecured_development_tokens:
            raise ValueError("needs jwks_endpoint_url or jwks_file")
        self.keys: JwksKeys | None = None
        if sources:
            failures = services.metrics.counter(
                "klamm:type=sasl,name=jwks-failures-total",
                "Failed fetches of token keys.",
                listener=context.listener.name,
            )
            self._sessions = context.sessions
            name = f"klamm-jwks-{context.listener.name}"
            self.keys = JwksKeys(settings, fetcher(settings), services.clock, failures, name)
            if settings.jwks_file is not None:
                self.keys.refresh()
            self.keys.changed = self._keys_changed
            self.keys.start()
        keys = self.keys
        self.validator = TokenValidator(settings, lambda: keys.keys if keys is not None else {}, services.clock.wall_ms)

    def _keys_changed(self) -> None:
        self._sessions.recheck([_SIGNED])

    def proof(self, token: BearerToken) -> SaslProof | None:
        """Return the proof of a client that has sent a signed token; None for an unsigned token."""
        keys, thumbprint = self.keys, token.key_thumbprint
        if keys is None or thumbprint is None:
            return None

        def revoked_because() -> str | None:
            return None if thumbprint in keys.thumbprints else "the key that has signed the token was removed"

        return SaslProof(_SIGNED, revoked_because)

    def server(self, connection: ConnectionContext, transport: TransportLayer) -> OAuthBearerServer:
        return OAuthBearerServer(self)

    def reload(self) -> None:
        """Read the keys again if they come from a file. Raises OSError or JwksError."""
        if self.keys is not None and self.settings.jwks_file is not None:
            self.keys.refresh()

    def close(self) -> None:
        if self.keys is not None:
            self.keys.close()


class OAuthBearerServer(SaslServer):
    r"""One exchange. A valid token ends it.

    After an invalid token, the client gets the error and must end the exchange with \x01.
    """

    def __init__(self, mechanism: OAuthBearerMechanism) -> None:
        self._mechanism = mechanism
        # The error that the client gets after a refused token.
        self._answer = ""

    def evaluate(self, token: bytes) -> SaslEvaluation:
        if self.refusal:
            if token == b"\x01":
                raise SaslAuthenticationError(self._answer, reason=self.refusal)
            raise SaslError("expected the client's \\x01 after a token that was refused")
        try:
            match = _CLIENT_FIRST.fullmatch(token.decode())
        except UnicodeDecodeError as error:
            raise SaslError("an OAUTHBEARER message is not UTF-8") from error
        if match is None:
            raise SaslError("invalid OAUTHBEARER client first message")
        pairs = dict(pair.split("=", 1) for pair in match["pairs"].split("\x01") if pair)
        auth = _AUTH.fullmatch(pairs.get("auth", ""))
        if auth is None or auth["scheme"].lower() != "bearer":
            raise SaslError("an OAUTHBEARER client first message without a bearer token")
        authzid = (match["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
        bearer = auth["token"]
        self.claimed = authzid
        try:
            return self._proved(bearer, authzid)
        except UnknownKeyError as error:
            if self._mechanism.keys is None:
                return self._refuse(error, bearer)
            return SaslTask(lambda: self._again(bearer, authzid), submit=self._mechanism.keys.submit)
        except TokenError as error:
            return self._refuse(error, bearer)

    def _again(self, bearer: str, authzid: str) -> SaslChallenge | SaslSuccess:
        try:
            return self._proved(bearer, authzid)
        except TokenError as error:
            return self._refuse(error, bearer)

    def _proved(self, bearer: str, authzid: str) -> SaslSuccess:
        token = self._mechanism.validator.validate(bearer)
        if authzid and authzid != token.name:
            raise SaslAuthenticationError(
                f"Authentication failed: Client requested an authorization id ({authzid}) that is different from "
                f"the token's principal name ({token.name})"
            )
        proof = self._mechanism.proof(token)
        return SaslSuccess(KafkaPrincipal(token.name), expires_ms=token.expires_ms, proof=proof)

    def _refuse(self, error: TokenError, bearer: str) -> SaslChallenge:
        self.claimed = self.claimed or self._mechanism.validator.unproved_name(bearer)
        answer = {"status": error.status}
        if error.scope is not None:
            answer["scope"] = error.scope
        self.refusal = f"the token {error}"
        self._answer = json.dumps(answer, separators=(",", ":"))
        return SaslChallenge(self._answer.encode())
