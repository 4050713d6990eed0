"""The observer and the filter `audit`: they write the intents of state changes, and put events into queues.

klamm calls them on the threads that serve requests. The writer's thread of `AuditSink` takes events from the queues.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any, Final

from klamm import (
    Address,
    ConnectionContext,
    ErrorCode,
    KafkaError,
    ListenerContext,
    RateLimitedLog,
    RequestContext,
    RequestEvent,
    RequestFilter,
    RequestObserver,
)
from klamm.wire.api_keys import ApiKey
from klamm_spark.observer.aggregation import Client, ListenerAudit
from klamm_spark.observer.encoder import context_fields, resource_texts
from klamm_spark.observer.event_queue import REFUSE
from klamm_spark.observer.intents import UnrecordableError
from klamm_spark.observer.long_events import RESOURCES_OF_ONE_EVENT
from klamm_spark.observer.sink import AuditSink
from klamm_spark.requests.resources import Summary
from klamm_spark.requests.state_changes import ADMINISTRATIVE, CHANGING, described, is_change
from klamm_spark.settings.audit import AuditSettings

_STATE: Final = "klamm_spark.observer.audit"
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
            _K.SHARE_GROUP_HEARTBEAT,
            _K.STREAMS_GROUP_HEARTBEAT,
            _K.DESCRIBE_GROUPS,
            _K.CONSUMER_GROUP_DESCRIBE,
            _K.SHARE_GROUP_DESCRIBE,
            _K.STREAMS_GROUP_DESCRIBE,
            _K.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
            _K.DELETE_GROUPS,
            _K.OFFSET_DELETE,
            _K.DESCRIBE_SHARE_GROUP_OFFSETS,
            _K.ALTER_SHARE_GROUP_OFFSETS,
            _K.DELETE_SHARE_GROUP_OFFSETS,
            _K.INIT_PRODUCER_ID,
            _K.ADD_PARTITIONS_TO_TXN,
            _K.ADD_OFFSETS_TO_TXN,
            _K.END_TXN,
            _K.TXN_OFFSET_COMMIT,
            _K.DESCRIBE_TRANSACTIONS,
        ),
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ),
    _K.METADATA: ErrorCode.LEADER_NOT_AVAILABLE,
}
"""The error after which clients retry, for some APIs. For all other APIs it is REQUEST_TIMED_OUT."""


class AuditObserver(RequestObserver):
    """The observer of one listener. All listeners that name the same directory share the spool and its writer."""

    def __init__(self, settings: AuditSettings) -> None:
        super().__init__(settings)
        self._settings = settings
        self._sink: AuditSink
        self._listener: ListenerAudit
        self._failures: RateLimitedLog

    def open(self, listener: ListenerContext) -> None:
        settings, services = self._settings, listener.services
        sink = self._sink = shared_sink(settings, listener)
        if settings.on_full == REFUSE and listener.name not in sink.filtered_listeners:
            raise ValueError('on_full = "refuse" needs filters = ["audit"] on the listener')
        self._listener = sink.audit_of(listener, settings)
        self._failures = RateLimitedLog(logging.getLogger("klamm.audit"), services.scheduler.schedule)
        sink.acquire(settings)
        self._put = sink.requests.queue.put
        self._put_security = sink.security.queue.put
        self._clock = services.clock
        self._now_ns = services.clock.monotonic_ns

    def close(self) -> None:
        self._sink.release()

    @property
    def announced_api_keys(self) -> Collection[int]:
        """Return the APIs that may change state."""
        return CHANGING

    def starting(self, message: Any, context: RequestContext) -> None:
        """Write the intent of a state change, so that a crash before its outcome leaves a trace."""
        if not is_change(context.api_key, message):
            return
        client = self._client(context.connection)
        resources = described(context.api_key, message, None, self._listener.topics)
        if len(resources) > RESOURCES_OF_ONE_EVENT:
            self._listener.switch_often()
        texts = ",".join(resource_texts(Summary(0, False, resources, len(resources))))
        fields = f'{client.fields}{context_fields(context)},"resources":[{texts}]'
        if self._sink.named is not None:
            fields = self._sink.named(fields)
        try:
            intent_id = self._sink.journal.begin(self._clock.wall_us(), fields, sync=self._syncs(context.api_key))
        except UnrecordableError as error:
            self._failures.log("intent", logging.ERROR, "audit: a state change cannot be recorded: %s", error)
            if self._settings.on_unrecordable_change == REFUSE:
                raise _refusal(context) from error
            return
        client.intents[id(context)] = intent_id

    def _syncs(self, api_key: int) -> bool:
        wanted = self._settings.sync_intents
        return wanted == "all" or (wanted == "administrative" and api_key in ADMINISTRATIVE)

    def completed_many(self, events: Sequence[RequestEvent]) -> None:
        connection = events[0].context.connection
        client: Client | None = connection.state.get(_STATE)
        (client or self._client(connection)).add_events(events)

    def _client(self, connection: ConnectionContext) -> Client:
        client: Client | None = connection.state.get(_STATE)
        if client is None:
            client = connection.state[_STATE] = Client(connection, self._listener)
        return client

    def _authentication(self, connection: ConnectionContext, action: str, reason: str) -> None:
        # Copy both now, because they may change before the event is written.
        who = (connection.principal, connection.attempted_principal)
        client, now_ns = self._client(connection), self._now_ns()
        self._put_security(lambda recorder: recorder.authentication(client, action, reason, who, now_ns))

    def authenticated(self, connection: ConnectionContext, reauthentication: bool) -> None:
        self._authentication(connection, "reauthentication" if reauthentication else "success", "")

    def authentication_failed(self, connection: ConnectionContext, reason: str, reauthentication: bool) -> None:
        self._authentication(connection, "reauthentication_failure" if reauthentication else "failure", reason)

    def session_expired(self, connection: ConnectionContext) -> None:
        self._authentication(connection, "expiry", "not authenticated again within the session's lifetime")

    def connection_refused(self, address: Address, reason: str, detail: str) -> None:
        listener, now_ns = self._listener, self._now_ns()
        self._put(lambda recorder: recorder.refused(listener, address, reason, detail, now_ns))

    def connection_opened(self, connection: ConnectionContext) -> None:
        client, now_ns = self._client(connection), self._now_ns()
        self._put(lambda recorder: recorder.opened(client, now_ns))

    def connection_closed(self, connection: ConnectionContext, reason: str) -> None:
        client, now_ns = self._client(connection), self._now_ns()
        for window in client.take_windows(None):
            client.put_window(window)
        self._put(lambda recorder: recorder.closed(client, reason, now_ns))


class AuditFilter(RequestFilter):
    """The filter that refuses requests while the audit cannot record them, for `on_full = "refuse"`.

    A listener names it besides the observer, and both use the same spool. ApiVersions is never refused.
    """

    def __init__(self, settings: AuditSettings) -> None:
        super().__init__(settings)
        self._settings = settings
        self._sink: AuditSink

    @property
    def api_keys(self) -> Collection[int]:
        return frozenset(ApiKey) - {ApiKey.API_VERSIONS}

    def open(self, listener: ListenerContext) -> None:
        self._sink = shared_sink(self._settings, listener)
        # Filters of a listener are opened before its observers.
        self._sink.filtered_listeners.add(listener.name)

    def on_request(self, message: Any, context: RequestContext) -> Any:
        if self._settings.on_full == REFUSE and self._sink.is_full():
            raise _refusal(context)
        return message


def _refusal(context: RequestContext) -> KafkaError:
    code = _RETRIABLE.get(context.api_key, ErrorCode.REQUEST_TIMED_OUT)
    return KafkaError(code, "the audit log cannot be written")


def shared_sink(settings: AuditSettings, listener: ListenerContext) -> AuditSink:
    """Return the spool with its writer. All listeners that name the same directory share it."""
    services = listener.services
    name = f"klamm_spark.observer.audit:{settings.spool.absolute()}"
    sink = services.shared.once(name, lambda: AuditSink(settings, services))
    # The console shows the events of the first spool.
    services.shared.once("klamm.audit", lambda: sink)
    return sink
