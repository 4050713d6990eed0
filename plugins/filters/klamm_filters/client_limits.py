"""The filter `client_limits`. klamm calls it on the thread that runs a request, for several requests at once."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Final

from klamm import ErrorCode, KafkaError, ListenerContext, RequestContext, RequestFilter
from klamm.filters import Disconnect
from klamm_filters.api_names import API_KEYS, matching
from klamm_filters.filter_settings import ClientLimitsSettings, parse_version
from klamm_filters.refusals import Refusals

_UNKNOWN: Final = "unknown"
_KEPT_VERDICTS: Final = 4096
_KEPT_CHARACTERS: Final = 1_024
"""Maximum total length of a client's names. Verdicts on longer names are not cached."""


class ClientLimits(RequestFilter):
    """The filter `client_limits`. It checks each request, because a client may change its name during a connection.

    The verdict on a client's names and versions is computed once and cached.
    """

    settings: ClientLimitsSettings

    def __init__(self, settings: ClientLimitsSettings) -> None:
        super().__init__(settings)
        self._apis = matching(settings.apis) | {API_KEYS[name] for name in settings.min_api_versions}
        self._min_api_versions = {API_KEYS[name]: version for name, version in settings.min_api_versions.items()}
        self._oldest = {name: parse_version(text) for name, text in settings.min_software_versions.items()}
        self._refusals = Refusals("client_limits")
        self._kept_problem = lru_cache(_KEPT_VERDICTS)(self._find_problem)

    def open(self, listener: ListenerContext) -> None:
        self._refusals.open(listener)

    @property
    def api_keys(self) -> Collection[int]:
        return self._apis

    def on_request(self, message: Any, context: RequestContext) -> Any:
        connection = context.connection
        problem = self._problem(
            connection.client_software_name, connection.client_software_version, context.client_id or ""
        )
        if problem is None and context.api_version < self._min_api_versions.get(context.api_key, 0):
            oldest = self._min_api_versions[context.api_key]
            problem = f"{context.api_name} version {context.api_version} is older than {oldest}"
        if problem is None:
            return message
        self._refusals.note(context, problem)
        if self.settings.disconnect:
            raise Disconnect(f"client_limits: {problem}")
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{problem[0].upper()}{problem[1:]}.")

    def _problem(self, software: str, version: str, client_id: str) -> str | None:
        is_usual = len(software) + len(version) + len(client_id) <= _KEPT_CHARACTERS
        return (self._kept_problem if is_usual else self._find_problem)(software, version, client_id)

    def _find_problem(self, software: str, version: str, client_id: str) -> str | None:
        settings = self.settings
        named = any(fnmatchcase(software, one) for one in settings.software)
        if settings.software and not named:
            return f"client software {software} is not allowed"
        if self._oldest and software == _UNKNOWN and not named:
            return "the client does not name its software (KIP-511)"
        if software in self._oldest:
            numbers, oldest = parse_version(version), self._oldest[software]
            if numbers is None or oldest is None or numbers < oldest:
                text = settings.min_software_versions[software]
                return f"version {version} of {software} is older than {text}"
        if settings.client_ids and not any(fnmatchcase(client_id, one) for one in settings.client_ids):
            return "the client id is not allowed"
        return None
