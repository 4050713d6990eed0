"""`Recording`: the latest requests of one server, each with its response and its outcome.

The observer adds them. Tests, timelines and the control API read them.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from klamm import KafkaError, RequestEvent, ServerServices
from klamm.config import did_you_mean
from klamm.testing import HELPER_CLIENT_ID
from klamm.wire.api_keys import ApiKey, find_spec
from klamm.wire.messages.produce import ProduceRequest
from klamm.wire.primitives import WireError
from klamm.wire.records import NO_PARTITION_LEADER_EPOCH, assign_offset, decode_records, iterate_batches
from klamm.wire.struct_base import WireStruct, copy_message

_DEFAULTS: Final[dict[type, Any]] = {}


def plain(value: Any) -> Any:
    """Return a field's value in plain types.

    A message becomes a dictionary of the fields that differ from their defaults.
    """
    if isinstance(value, WireStruct):
        fields = {name: getattr(value, name) for name in value.__slots__}
        default = _default(type(value))
        return {
            name: _records(field) if name == "records" else plain(field)
            for name, field in fields.items()
            if field != getattr(default, name, None)
        }
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return readable(bytes(value))
    if value is None or isinstance(value, (str, int, float)):
        return value
    return repr(value)


def readable(content: bytes | None) -> Any:
    """Return bytes as text if they are UTF-8, else as `{"hex": …}`."""
    if content is None:
        return None
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return {"hex": content.hex()}
    return text if text.isprintable() else {"hex": content.hex()}


def _default(kind: type) -> Any:
    made = _DEFAULTS.get(kind)
    if made is None:
        try:
            made = _DEFAULTS[kind] = kind()
        except TypeError:
            # A class whose constructor needs arguments has no default message. Then all its fields are shown.
            return None
    return made


def _records(records: Any) -> Any:
    if records is None:
        return None
    if not isinstance(records, (bytes, bytearray, memoryview)):
        # The records were sent from a file, which may be deleted by now.
        return {"bytes": records.size_bytes}
    found = []
    try:
        for _header, batch in iterate_batches(bytes(records)):
            for record in decode_records(batch):
                one: dict[str, Any] = {"offset": record.offset, "timestamp_ms": record.timestamp_ms}
                one |= {"key": readable(record.key), "value": readable(record.value)}
                if record.headers:
                    one["headers"] = [[name, readable(content)] for name, content in record.headers]
                found.append(one)
    except (KafkaError, WireError, ValueError):
        return {"bytes": len(records)}
    return found


SHARED_KEY: Final = "klamm.recording"
FORMAT: Final = 1
_API_NAMES: Final = frozenset(spec.name for key in ApiKey if (spec := find_spec(key)) is not None)
_NO_ID: Final = bytes(16)
_LOOK_EVERY_S: Final = 0.0005
_LOOKS: Final = 2000


class RecordedRequest:
    """A completed request.

    `request` and `response` are messages of `klamm.wire.messages`; None if the body was not read, or if no answer was
    sent. `outcome` is the value of a `klamm.RequestOutcome`, e.g. `answered`. `ended_ms` is the server's time.
    """

    __slots__ = ("_event", "ended_ms")

    def __init__(self, event: RequestEvent, ended_ms: int) -> None:
        self._event = event
        self.ended_ms = ended_ms

    @property
    def api(self) -> str:
        return self._event.context.api_name

    @property
    def version(self) -> int:
        return self._event.context.api_version

    @property
    def client_id(self) -> str | None:
        return self._event.context.client_id

    @property
    def connection_id(self) -> str:
        return self._event.context.connection.connection_id

    @property
    def listener(self) -> str:
        return self._event.context.listener.name

    @property
    def correlation_id(self) -> int:
        return self._event.context.correlation_id

    @property
    def node(self) -> int:
        """The position of the node that got the request; 0 for the first node."""
        return self._event.context.listener.node

    @property
    def started_ns(self) -> int:
        """Return the time at which the request was read, on the monotonic clock of the server."""
        return self._event.times.received_ns

    @property
    def request(self) -> Any:
        return self._event.request

    @property
    def response(self) -> Any:
        return self._event.response

    @property
    def outcome(self) -> str:
        return self._event.outcome.value

    @property
    def error_code(self) -> int:
        """The first error code in the response."""
        return self._event.error_code

    @property
    def duration_ms(self) -> float:
        return self._event.times.total_ns / 1e6

    def to_json(self) -> dict[str, Any]:
        """Return the request as JSON values; `raw` is the request's body in base64, for `klamm replay`."""
        context = self._event.context
        raw = b"" if self.request is None else _as_sent(self.request).encode(self.version)
        return {
            "api": self.api,
            "version": self.version,
            "client_id": self.client_id,
            "correlation_id": context.correlation_id,
            "listener": self.listener,
            "connection_id": self.connection_id,
            "principal": str(context.principal),
            "ended_ms": self.ended_ms,
            "duration_ms": round(self.duration_ms, 3),
            "outcome": self.outcome,
            "error_code": self.error_code,
            "request": plain(self.request),
            "response": plain(self.response),
            "raw": base64.b64encode(raw).decode(),
        }

    def __repr__(self) -> str:
        return f"<{self.api} v{self.version} of {self.client_id}: {self.outcome}, {plain(self.request)}>"


class Recording:
    """The recorded requests, without those of test helpers. Any thread may call it.

    Above the limits, it drops the oldest requests.
    """

    def __init__(
        self,
        max_requests: int = 10_000,
        max_bytes: int = 64 << 20,
        wait_until_notified: Callable[[], object] = lambda: None,
    ) -> None:
        """Keep requests within the limits. `wait_until_notified` returns when `add` was called for all answered
        requests.
        """
        self._wait_until_notified = wait_until_notified
        # Protects all fields, because several processors call `add`. Each call notifies it.
        self._lock = threading.Condition()
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._kept: deque[RecordedRequest] = deque()
        self._bytes = 0

    def add(self, events: Sequence[RequestEvent], now_ms: int) -> None:
        """Record requests that have ended."""
        with self._lock:
            for event in events:
                if event.context.client_id != HELPER_CLIENT_ID:
                    self._kept.append(RecordedRequest(event, now_ms))
                    self._bytes += _size(event)
            while len(self._kept) > self._max_requests or (self._bytes > self._max_bytes and len(self._kept) > 1):
                self._bytes -= _size(self._kept.popleft()._event)
            self._lock.notify_all()

    def requests(
        self, api: str | None = None, *, count: int | None = None, timeout_s: float = 10.0
    ) -> list[RecordedRequest]:
        """Return the recorded requests of all APIs or of one, oldest first.

        They include each request whose answer a client has read. With a `count`, this method waits for this number of
        requests. Raises ValueError for an unknown API, TimeoutError. A processor's thread must not call it.
        """
        if api is not None and api not in _API_NAMES:
            raise ValueError(f'there is no API "{api}"{did_you_mean(api, _API_NAMES)}')
        self._wait_until_notified()
        found: list[RecordedRequest] = []

        def enough() -> bool:
            found[:] = [one for one in self._kept if api is None or one.api == api]
            return count is None or len(found) >= count

        with self._lock:
            if not self._lock.wait_for(enough, timeout_s):
                raise TimeoutError(
                    f"{len(found)} requests{f' {api}' if api else ''} came in {timeout_s:g} s, not {count}"
                )
        return found

    def topic_names(self) -> dict[bytes, str]:
        """Return the topic names in recorded responses, by topic id."""
        return {bytes.fromhex(topic_id): name for topic_id, name in topic_names(self.requests()).items()}

    def clear(self) -> None:
        """Drop all recorded requests."""
        with self._lock:
            self._kept.clear()
            self._bytes = 0

    def save(self, file: Path | str) -> None:
        """Write the requests as JSON, one in each line, after a first line about the file."""
        kept = self.requests()
        head = {"klamm_recording": FORMAT, "topics": topic_names(kept)}
        lines = [json.dumps(one) for one in (head, *(request.to_json() for request in kept))]
        Path(file).write_text("\n".join(lines) + "\n", encoding="utf-8")


def wait_until_notified(services: ServerServices) -> None:
    """Wait until observers know each request whose answer was sent before the call, but for a second at most."""
    now_ns = services.clock.monotonic_ns()
    for _ in range(_LOOKS):
        if services.served_until_ns() > now_ns:
            return
        time.sleep(_LOOK_EVERY_S)


def _as_sent(request: Any) -> Any:
    """Return a Produce request as its client sent it.

    The log has written an offset and a leader epoch into the batches; the copy has the client's values again.
    """
    if not isinstance(request, ProduceRequest):
        return request
    request = copy_message(request)
    for topic in request.topic_data:
        for partition in topic.partition_data:
            if partition.records:
                partition.records = batch = bytearray(partition.records)
                assign_offset(batch, 0, NO_PARTITION_LEADER_EPOCH)
    return request


def _size(event: RequestEvent) -> int:
    return event.context.size_bytes + event.response_bytes


def topic_names(requests: Iterable[RecordedRequest]) -> dict[str, str]:
    """Return the topic names in recorded responses, by topic id in hex."""
    found = {}
    for one in requests:
        if one.api in ("Metadata", "CreateTopics") and one.response is not None:
            for topic in one.response.topics:
                if topic.topic_id != _NO_ID and topic.name:
                    found[topic.topic_id.hex()] = topic.name
    return found
