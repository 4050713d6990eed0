"""`Policy`: decides which requests are recorded, and in which detail. The observer `audit` calls it."""

from __future__ import annotations

from typing import Final

from klamm.shared import IpNetworks
from klamm.wire.api_keys import ApiKey
from klamm_spark.settings.audit import DETAIL, METADATA, OFF, AuditSettings, api_key_of

NOTHING: Final = 0
WITHOUT_RESOURCES: Final = 1
EVERYTHING: Final = 2
_LEVELS: Final = {OFF: NOTHING, METADATA: WITHOUT_RESOURCES, DETAIL: EVERYTHING}

SUMMED_BY_TOPIC: Final = frozenset({ApiKey.PRODUCE, ApiKey.FETCH})
"""Aggregated events of these APIs have all requests' bytes by topic. Others have the first request's resources."""


class Policy:
    """The levels and exclusions of one listener. A principal's level takes precedence over an API's, and this over the
    default.

    State changes, denials, refusals and failed authentications are always recorded.
    """

    def __init__(self, settings: AuditSettings) -> None:
        self._default = _LEVELS[settings.level]
        self._apis = {api_key_of(name): _LEVELS[level] for name, level in settings.apis.items()}
        self._principals = {name: _LEVELS[level] for name, level in settings.principals.items()}
        self._excluded_principals = frozenset(settings.exclude_principals)
        self._excluded_networks = IpNetworks(settings.exclude_networks)
        self.excluded_client_ids = frozenset(settings.exclude_client_ids)

    def excludes(self, principal: str, host: str) -> bool:
        """Return True if nothing of a client is recorded."""
        return principal in self._excluded_principals or host in self._excluded_networks

    def level(self, principal: str, api_key: int) -> int:
        """Return NOTHING, WITHOUT_RESOURCES or EVERYTHING."""
        level = self._principals.get(principal)
        return level if level is not None else self._apis.get(api_key, self._default)
