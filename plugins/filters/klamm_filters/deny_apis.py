"""The filter `deny_apis`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from klamm import ErrorCode, KafkaError, ListenerContext, RequestContext, RequestFilter
from klamm_filters.api_names import API_KEYS, matching
from klamm_filters.refusals import Refusals
from klamm_filters.settings import DenyApisSettings


class DenyApis(RequestFilter):
    """Gets requests of the denied APIs alone, so that all others cost nothing."""

    settings: DenyApisSettings

    def __init__(self, settings: DenyApisSettings) -> None:
        super().__init__(settings)
        denied = matching(settings.deny)
        if settings.allow:
            denied |= frozenset(API_KEYS.values()) - matching(settings.allow)
        self._denied = denied
        self._exempt = frozenset(settings.except_principals)
        self._refusals = Refusals("deny_apis")

    def open(self, listener: ListenerContext) -> None:
        self._refusals.open(listener)

    @property
    def api_keys(self) -> Collection[int]:
        return self._denied

    def on_request(self, message: Any, context: RequestContext) -> Any:
        if self._exempt and str(context.principal) in self._exempt:
            return message
        self._refusals.note(context, "the API is denied")
        raise KafkaError(ErrorCode[self.settings.error], f"{context.api_name} is denied by this listener.")
