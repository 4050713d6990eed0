"""The filter `rewrite_client_id`. klamm calls it on the thread that runs the request."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from klamm import ErrorCode, KafkaError, ListenerContext, RequestContext, RequestFilter
from klamm_filters.api_names import API_KEYS
from klamm_filters.filter_settings import RewriteClientIdSettings
from klamm_filters.refusals import Refusals

_MAX_BYTES: Final = 32767
"""Maximum length of a client id, because its length in a request header is an INT16."""


class RewriteClientId(RequestFilter):
    """The filter `rewrite_client_id`. It replaces the client id of each request.

    Later filters, the handler set and quotas see only the new client id.
    """

    settings: RewriteClientIdSettings

    def __init__(self, settings: RewriteClientIdSettings) -> None:
        super().__init__(settings)
        self._refusals = Refusals("rewrite_client_id")

    def open(self, listener: ListenerContext) -> None:
        self._refusals.open(listener)

    @property
    def api_keys(self) -> Collection[int]:
        return frozenset(API_KEYS.values())

    def on_request(self, message: Any, context: RequestContext) -> Any:
        client_id = self.settings.template.format(
            client_id=context.client_id or "",
            principal=context.principal.name,
            listener=context.listener.configured_as,
            host=context.client_address.host,
        )
        if len(client_id.encode()) > _MAX_BYTES:
            self._refusals.note(context, "the new client id is too long")
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The client id is too long.")
        context.client_id = client_id
        return message
