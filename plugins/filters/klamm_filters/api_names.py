"""The names of APIs in settings of filters: patterns, and their checks."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

from klamm.wire.api_keys import SPECS, ApiKey

UNFILTERED: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
"""APIs that clients use before authentication. If the listener authenticates, their requests reach no filter."""

API_KEYS: Final = {spec.name: spec.api_key for spec in SPECS if spec.api_key not in UNFILTERED}
"""The APIs that a filter may name, by Kafka's names."""


def matching(patterns: Iterable[str]) -> frozenset[int]:
    """Return the keys of all APIs whose names match one of the patterns."""
    patterns = tuple(patterns)
    return frozenset(key for name, key in API_KEYS.items() if any(fnmatchcase(name, one) for one in patterns))


def check_apis(patterns: Iterable[str]) -> str | None:
    """Return an error text if one of the names or patterns matches no API, else None."""
    wrong = [one for one in patterns if not matching((one,))]
    if not wrong:
        return None
    return f'filters get no API of the name "{wrong[0]}"; use names as in Kafka, e.g. Produce or Alter*'
