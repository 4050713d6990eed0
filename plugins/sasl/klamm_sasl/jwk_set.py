"""`parse_jwks`: selects the keys of a JWK set that can check signatures of tokens, for `JwksKeys`."""

from __future__ import annotations

import json
import logging

from joserfc.jwk import Key, KeySet

log = logging.getLogger("klamm.sasl")


class JwksError(Exception):
    """Raised if the JWK set cannot be fetched, or is invalid."""


def parse_jwks(data: bytes) -> dict[str, list[Key]]:
    """Return the keys that can check signatures, by their id; keys without an id are under "". Raises JwksError.

    Other keys, and keys of unknown types, are left out.
    """
    try:
        content = json.loads(data)
    except json.JSONDecodeError as error:
        raise JwksError(f"is not a JWK set: {error}") from error
    except ValueError as error:
        raise JwksError("is not a JWK set: it is not text") from error
    entries = content.get("keys") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise JwksError('is not a JWK set: it is not an object with a list "keys"')
    found: dict[str, list[Key]] = {}
    for entry in entries:
        # Leave out symmetric keys: any reader of the set could sign tokens with them.
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig" or entry.get("kty") == "oct":
            continue
        try:
            (key,) = KeySet.import_key_set({"keys": [entry]}).keys
        except Exception as error:
            log.info("a key of the JWK set cannot be used: %r", error)
            continue
        kid = entry.get("kid")
        found.setdefault(kid if isinstance(kid, str) else "", []).append(key)
    if not found:
        raise JwksError("has no key for signatures")
    return found
