"""The observer `audit`: puts events into a queue, and does nothing else on the server's threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm import ErrorCode, KafkaError, RequestObserver
from klamm.wire.api_keys import ApiKey
from klamm_spark.aggregation import (
    AUTHENTICATED,
    CLOSED,
    OPENED,
    REFUSED,
    WINDOW,
    Client,
    ListenerAudit,
)
from klamm_spark.sink import AuditSink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klamm import Address, ConnectionContext, ListenerContext, RequestContext
    from klamm_spark.settings import AuditSettings

_STATE: Final = "klamm_spark.audit"
_K = ApiKey
_RETRIABLE: Final[dict[int, ErrorCode]] = {
    **dict.fromkeys((_K.PRODUCE, _K.FETCH, _K.LIST_OFFSETS, _K.OFFSET_FOR_LEADER_EPOCH), ErrorCode.KAFKA_STORAGE_ERROR),
    **dict.fromkeys(
        (
            _K.OFFSET_COMMIT,
            _K.OFFSET_FETCH,
            _K.FIND_COORDINATOR,
            _K.JOIN_GROUP,
            _K.SYNC_GROUP,
            _K.HEARTBEAT,
            _K.LEAVE_GROUP,
            _K.CONSUMER_GROUP_HEARTBEAT,
            _K.INIT_PRODUCER_ID,
            _K.ADD_PARTITIONS_TO_TXN,
            _K.ADD_OFFSETS_TO_TXN,
            _K.END_TXN,
            _K.TXN_OFFSET_COMMIT,
        ),
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ),
    _K.METADATA: ErrorCode.LEADER_NOT_AVAILABLE,
}
"""The error after which clients of an API retry; REQUEST_TIMED_OUT for all others."""


class AuditObserver(RequestObserver):
    """One per listener; the spool and its writer are shared by all listeners that name the same directory."""

    def __init__(self, settings: AuditSettings) -> None:
        super().__init__(settings)
        self._settings = settings
        self._refuses = settings.on_full == "refuse"
        above = settings.aggregate_above_per_second
        # Who refuses must be asked each time, and who wants every request by itself must see each.
        self.repeats_after = above if above >= 0 and not self._refuses else None
        self._sink: AuditSink
        self._listener: ListenerAudit

    def open(self, listener: ListenerContext) -> None:
        settings, services = self._settings, listener.services
        self._sink = services.shared.once(
            f"klamm_spark.audit:{settings.spool.absolute()}", lambda: AuditSink(settings, services)
        )
        sink = self._sink
        self._listener = ListenerAudit(listener, settings, sink.topics, sink.queue.put, sink.begun)
        sink.acquire(settings)
        self._put = sink.queue.put
        self._now_ns = services.clock.monotonic_ns

    def close(self) -> None:
        self._sink.release()

    def refuse(self, request: RequestContext) -> KafkaError | None:
        if not self._refuses or not self._sink.queue.full:
            return None
        return KafkaError(
            _RETRIABLE.get(request.api_key, ErrorCode.REQUEST_TIMED_OUT), "the audit log cannot be written"
        )

    def completed_many(self, requests: Sequence[RequestContext], end_ns: int) -> None:
        connection = requests[0].connection
        client: Client | None = connection.state.get(_STATE)
        (client or self._client(connection)).take_in(requests, end_ns)

    def may_repeat(self, api_key: int) -> bool:
        return self._listener.policy.may_repeat(api_key)

    def repeated(
        self, request: RequestContext, count: int, request_bytes: int, response_bytes: int, last_ns: int
    ) -> None:
        self._client(request.connection).take_repeats(request, count, request_bytes, response_bytes, last_ns)

    def _client(self, connection: ConnectionContext) -> Client:
        client: Client | None = connection.state.get(_STATE)
        if client is None:
            client = connection.state[_STATE] = Client(connection, self._listener)
        return client

    def _authentication(self, connection: ConnectionContext, action: str, reason: str) -> None:
        self._put((AUTHENTICATED, self._client(connection), action, reason, self._now_ns()))

    def authenticated(self, connection: ConnectionContext, reauthentication: bool) -> None:
        self._authentication(connection, "reauthentication" if reauthentication else "success", "")

    def authentication_failed(self, connection: ConnectionContext, reason: str, reauthentication: bool) -> None:
        self._authentication(connection, "reauthentication_failure" if reauthentication else "failure", reason)

    def session_expired(self, connection: ConnectionContext) -> None:
        self._authentication(connection, "expiry", "not authenticated again within the session's lifetime")

    def connection_refused(self, address: Address, reason: str, detail: str) -> None:
        self._put((REFUSED, self._listener, address, reason, detail, self._now_ns()))

    def connection_opened(self, connection: ConnectionContext) -> None:
        self._put((OPENED, self._client(connection), self._now_ns()))

    def connection_closed(self, connection: ConnectionContext, reason: str) -> None:
        client = self._client(connection)
        for window in client.take_windows(None):
            self._put((WINDOW, client, window), request=True)
        self._put((CLOSED, client, reason, self._now_ns()))
