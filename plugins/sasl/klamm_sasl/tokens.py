"""`TokenValidator`: checks bearer tokens, which are signed JWTs (RFC 7519), or unsigned ones for development.

It follows Kafka's `BrokerJwtValidator`. The mechanism OAUTHBEARER calls it on processors' threads.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import Key

from klamm_sasl.sasl_settings import OAuthBearerSettings

INVALID_TOKEN = "invalid_token"  # noqa: S105
INSUFFICIENT_SCOPE = "insufficient_scope"


class TokenError(Exception):
    """Raised for a refused token. The text is for the log; `status` and `scope` go to the client (RFC 7628, 3.2.2)."""

    def __init__(self, reason: str, status: str = INVALID_TOKEN, scope: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope


class UnknownKeyError(TokenError):
    """Raised for a token that is signed with an unknown key. A newer key set may have the key."""


@dataclass(frozen=True, slots=True)
class BearerToken:
    """The content of a valid token: a name, and the end of its validity in milliseconds since the epoch.

    `key_thumbprint` identifies the key that signed the token (RFC 7638); None for an unsigned token.
    """

    name: str
    expires_ms: int
    scopes: frozenset[str]
    key_thumbprint: str | None = None


class TokenValidator:
    """The check of tokens by the settings. `keys` returns the current keys by id, and `wall_ms` the current time."""

    def __init__(
        self, settings: OAuthBearerSettings, keys: Callable[[], Mapping[str, list[Key]]], wall_ms: Callable[[], int]
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._wall_ms = wall_ms

    def validate(self, token: str) -> BearerToken:
        """Return the content of a valid token. Raises UnknownKeyError if a newer key set may help, else TokenError."""
        header = _json_of(token.partition(".")[0])
        if header.get("alg") == "none":
            return self._checked(self._unsecured(token), None)
        claims, key = self._signed(token, header)
        return self._checked(claims, key.thumbprint())

    def unproved_name(self, token: str) -> str:
        """Return the name that a token claims, or an empty text. It is unproved: use it only to record a refusal."""
        try:
            name = _json_of(token.split(".")[1]).get(self._settings.sub_claim_name)
        except (TokenError, IndexError, ValueError):
            return ""
        return name if isinstance(name, str) else ""

    def _unsecured(self, token: str) -> Mapping[str, Any]:
        if not self._settings.unsecured_development_tokens:
            raise TokenError("is not signed")
        _, _, rest = token.partition(".")
        payload, dot, signature = rest.partition(".")
        if not dot or signature:
            raise TokenError("is not an unsecured token of three parts")
        return _json_of(payload)

    def _signed(self, token: str, header: Mapping[str, Any]) -> tuple[Mapping[str, Any], Key]:
        algorithm = header.get("alg")
        if algorithm not in self._settings.algorithms:
            raise TokenError(f"is signed with {str(algorithm)[:32]!r}, which is not accepted")
        keys, kid = self._keys(), header.get("kid")
        candidates = [key for group in keys.values() for key in group] if kid is None else keys.get(str(kid), [])
        if not candidates:
            raise UnknownKeyError("is signed with a key that is not known")
        reasons = []
        for key in candidates:
            try:
                verified = jws.deserialize_compact(token, key, algorithms=[algorithm])
            except (JoseError, ValueError, TypeError) as error:
                reasons.append(repr(error))
                continue
            return _object(verified.payload), key
        # If the key set has changed, the id may belong to another key now.
        raise UnknownKeyError(f"has a signature that does not match: {', '.join(sorted(set(reasons)))}")

    def _checked(self, claims: Mapping[str, Any], key_thumbprint: str | None) -> BearerToken:
        settings, now_s = self._settings, self._wall_ms() / 1000
        skew_s = settings.clock_skew_seconds
        expires_s = _number(claims, "exp", required=True)
        assert expires_s is not None
        if now_s - skew_s >= expires_s:
            raise TokenError("has expired")
        not_before_s = _number(claims, "nbf")
        if not_before_s is not None and now_s + skew_s < not_before_s:
            raise TokenError("is not valid yet")
        issued_s = _number(claims, "iat", required=not settings.unsecured_development_tokens)
        if issued_s is not None and issued_s > expires_s:
            raise TokenError("expires before it was issued")
        if settings.expected_issuer is not None and claims.get("iss") != settings.expected_issuer:
            raise TokenError("is from another issuer")
        audience = claims.get("aud", [])
        audience = [audience] if isinstance(audience, str) else audience
        if settings.expected_audience and not (
            isinstance(audience, list) and any(one in settings.expected_audience for one in audience)
        ):
            raise TokenError("is for another audience")
        scopes = _scopes(claims.get(settings.scope_claim_name, ()))
        missing = [scope for scope in settings.required_scope if scope not in scopes]
        if missing:
            required = " ".join(settings.required_scope)
            raise TokenError(f"lacks the scope {missing[0]!r}", INSUFFICIENT_SCOPE, required)
        name = claims.get(settings.sub_claim_name)
        if not isinstance(name, str) or not name.strip():
            raise TokenError(f"has no name in the claim {settings.sub_claim_name!r}")
        return BearerToken(name, int(expires_s * 1000), scopes, key_thumbprint)


def _json_of(part: str) -> Mapping[str, Any]:
    try:
        return _object(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except binascii.Error as error:
        raise TokenError("is not a JWT") from error


def _object(data: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TokenError("is not a JWT") from error
    if not isinstance(found, dict):
        raise TokenError("is not a JWT")
    return found


def _number(claims: Mapping[str, Any], name: str, *, required: bool = False) -> float | None:
    value = claims.get(name)
    if value is None and not required:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e11:
        raise TokenError(f"has no time in the claim {name!r}")
    return float(value)


def _scopes(value: Any) -> frozenset[str]:
    if isinstance(value, str):
        return frozenset(value.split())
    if isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value):
        return frozenset(one.strip() for one in value)
    raise TokenError("has scopes that are neither a string nor a list of strings")
