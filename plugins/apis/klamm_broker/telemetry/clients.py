"""`ClientTelemetry`: the clients that push metrics, their subscriptions and intervals, and the values that they have
pushed.

Follows Kafka's `ClientMetricsManager` and `ClientMetricsInstance`.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final

from klamm import ErrorCode, KafkaError, RateLimitedLog, RequestContext, ServerContext
from klamm.metrics import Counter, MetricsRegistry
from klamm.runtime import Clock, Scheduler
from klamm.wire.compression import Codec, decompress
from klamm_broker.limits.owners import owner_of
from klamm_broker.storage.meta_properties import random_uuid, uuid_text
from klamm_broker.storage.store import Store
from klamm_broker.telemetry.otlp import TelemetryError, read_metrics
from klamm_broker.telemetry.subscriptions import (
    ALL_METRICS,
    DEFAULT_INTERVAL_MS,
    ClientMetricsConfigs,
    attributes_of,
)
from klamm_broker.telemetry.values import PushedValues

log = logging.getLogger("klamm.broker.telemetry")

CODECS: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""Codecs that clients may use besides none, the preferred one first; Kafka's order."""

MAX_CLIENTS: Final = 16_384
MAX_REPORTED_CLIENTS: Final = 100
MAX_CLIENT_ID_CHARS: Final = 256
"""Maximum length of a client id that is stored for metrics."""
_UNPACKED_FACTOR: Final = 10
_MIN_EXPIRY_MS: Final = 60_000
_RESERVED: Final = (bytes(16), bytes(15) + b"\x01")
_METRICS: Final = "kafka.server:type=ClientMetrics,name="


class ClientInstance:
    """One client; `metrics` are the names of the metrics in its subscription."""

    __slots__ = (
        "client_id",
        "id",
        "interval_ms",
        "last_error",
        "last_get_ms",
        "last_push_ms",
        "metrics",
        "owner",
        "seen_ms",
        "subscription_id",
        "terminating",
        "version",
    )

    def __init__(
        self, instance_id: bytes, owner: str, client_id: str, version: int, metrics: tuple[str, ...], interval_ms: int
    ) -> None:
        self.id = instance_id
        self.owner = owner
        self.client_id = client_id
        self.version = version
        self.metrics = metrics
        self.interval_ms = interval_ms
        self.subscription_id = _subscription_id(metrics, interval_ms, instance_id)
        self.last_get_ms: int | None = None
        self.last_push_ms: int | None = None
        self.last_error = ErrorCode.NONE
        self.terminating = False
        self.seen_ms = 0

    def may_get(self, now_ms: int) -> bool:
        """Return True and note the time if the client may get its subscription now. It may do so once per interval."""
        times = [each for each in (self.last_get_ms, self.last_push_ms) if each is not None]
        if times and now_ms - max(times) < self.interval_ms:
            return False
        self.last_get_ms = now_ms
        return True

    def may_push(self, now_ms: int) -> bool:
        """Return True if the client may push now. It may do so once per interval, after it has got its subscription."""
        last = self.last_push_ms
        has_asked = self.last_get_ms is not None and (last is None or self.last_get_ms > last)
        if not has_asked and last is not None and now_ms - last < self.interval_ms:
            return False
        self.last_push_ms = now_ms
        return True


def _subscription_id(metrics: tuple[str, ...], interval_ms: int, instance_id: bytes) -> int:
    """Return an id that is the same for equal subscriptions of one client, also after a restart of the server."""
    import zlib

    crc = zlib.crc32(f"{','.join(metrics)}{interval_ms}".encode() + instance_id)
    return crc - (1 << 32) if crc >= 1 << 31 else crc


class ClientTable:
    """A limited number of clients. If there are too many, the owner with the most clients loses the one that has been
    silent the longest.

    The caller holds a lock.
    """

    def __init__(self, max_clients: int) -> None:
        self._max_clients = max_clients
        self._clients: dict[bytes, ClientInstance] = {}
        self._by_owner: dict[str, OrderedDict[bytes, ClientInstance]] = {}

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[ClientInstance]:
        return iter(list(self._clients.values()))

    def get(self, instance_id: bytes) -> ClientInstance | None:
        """Return the client, or None."""
        return self._clients.get(instance_id)

    @property
    def most_of_one_owner(self) -> int:
        """Return the largest number of clients of one owner."""
        return max(map(len, list(self._by_owner.values())), default=0)

    def put(self, client: ClientInstance) -> ClientInstance | None:
        """Add a client, or replace the client with its id. Return the client that was removed to make room."""
        self.remove(client.id)
        lost = None
        if len(self._clients) >= self._max_clients:
            lost = next(iter(max(self._by_owner.values(), key=_precedence).values()))
            self.remove(lost.id)
        self._clients[client.id] = client
        self._by_owner.setdefault(client.owner, OrderedDict())[client.id] = client
        return lost

    def seen(self, client: ClientInstance, now_ms: int) -> None:
        """Note that a client was seen now."""
        client.seen_ms = now_ms
        self._by_owner[client.owner].move_to_end(client.id)

    def remove(self, instance_id: bytes) -> None:
        """Forget a client if it is there."""
        client = self._clients.pop(instance_id, None)
        if client is not None:
            of_owner = self._by_owner[client.owner]
            del of_owner[instance_id]
            if not of_owner:
                del self._by_owner[client.owner]


def _precedence(clients: OrderedDict[bytes, ClientInstance]) -> tuple[int, int]:
    """Return the order of owners: by the number of clients, then by the client that has been silent the longest."""
    return len(clients), -next(iter(clients.values())).seen_ms


class ClientTelemetry:
    """All clients that push metrics. Any thread may call it. As in Kafka, clients silent for three intervals are
    removed.
    """

    def __init__(
        self,
        configs: ClientMetricsConfigs,
        clock: Clock,
        scheduler: Scheduler,
        random_bytes: Callable[[int], bytes],
        max_bytes: int,
        metrics: MetricsRegistry,
    ) -> None:
        self.configs = configs
        self.max_bytes = max_bytes
        self._clock = clock
        self._random_bytes = random_bytes
        # Protects the clients, their fields and their values.
        self._lock = threading.Lock()
        self._clients = ClientTable(MAX_CLIENTS)
        self._values = PushedValues()
        self._log = RateLimitedLog(log, scheduler.schedule)
        counter = metrics.counter
        self._throttled = counter(
            _METRICS + "throttle-count", "Telemetry requests that came before the push interval had passed."
        )
        self._unknown = counter(
            _METRICS + "unknown-subscription-request-count", "Pushes for a subscription that has since changed."
        )
        self._pushes: Counter = counter(_METRICS + "plugin-export-count", "Pushes of metrics that were accepted.")
        self._failures = counter(_METRICS + "plugin-error-count", "Pushes of metrics that cannot be read.")
        metrics.gauge(
            _METRICS + "ClientMetricsInstanceCount",
            "Clients that push metrics, or may do so.",
            lambda: len(self._clients),
        )
        metrics.gauge(
            "klamm:type=ClientTelemetry,name=MostOfOneOwner",
            "Clients that push metrics, of the principal that has the most.",
            lambda: self._clients.most_of_one_owner,
        )
        metrics.gauge(
            "klamm:type=ClientTelemetry,name=Bytes",
            "Approximate size of the values that clients have pushed.",
            lambda: self._values.size_bytes,
        )
        metrics.register(
            "klamm:type=ClientTelemetry,name=Value",
            "gauge",
            "The last value of a metric that a client has pushed, or the sum of its increments; of the 100 clients that"
            " pushed last.",
            self._samples,
        )

    def subscribe(self, instance_id: bytes, context: RequestContext) -> ClientInstance:
        """Return the client with its subscription. A client with the zero id gets a new id.

        Raises KafkaError(THROTTLING_QUOTA_EXCEEDED) before the client's interval is over, unless its last push was
        refused.
        """
        now_ms = self._clock.wall_ms()
        with self._lock:
            client = self._client(instance_id if any(instance_id) else random_uuid(self._random_bytes), context, now_ms)
            excused = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
            if not client.may_get(now_ms) and client.last_error not in excused:
                self._throttled.add()
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            client.last_error = ErrorCode.NONE
            return client

    def push(
        self,
        instance_id: bytes,
        subscription_id: int,
        terminating: bool,
        codec: int,
        data: bytes,
        context: RequestContext,
    ) -> None:
        """Store pushed metrics.

        Raises KafkaError: INVALID_REQUEST for an unknown client id and after a client's last push,
        THROTTLING_QUOTA_EXCEEDED before the client's interval is over, UNKNOWN_SUBSCRIPTION_ID,
        UNSUPPORTED_COMPRESSION_TYPE, TELEMETRY_TOO_LARGE, INVALID_RECORD for metrics that cannot be parsed.
        """
        if instance_id in _RESERVED:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        now_ms = self._clock.wall_ms()
        with self._lock:
            client = self._client(instance_id, context, now_ms)
            try:
                self._check(client, subscription_id, terminating, codec, len(data), now_ms)
            except KafkaError as error:
                client.last_error = error.error_code
                raise
            finally:
                client.terminating = terminating
            client.last_error = ErrorCode.NONE
        if not data:
            return
        try:
            points = list(read_metrics(bytes(decompress(Codec(codec), data, self.max_bytes * _UNPACKED_FACTOR))))
        except (KafkaError, TelemetryError) as error:
            self._failures.add()
            self._log.log("unreadable", logging.WARNING, "pushed metrics cannot be read: %s", error)
            with self._lock:
                client.last_error = ErrorCode.INVALID_RECORD
            raise KafkaError(ErrorCode.INVALID_RECORD) from None
        self._pushes.add()
        with self._lock:
            if self._clients.get(instance_id) is not None:
                self._values.take(instance_id, client.client_id, points)

    def _check(
        self, client: ClientInstance, subscription_id: int, terminating: bool, codec: int, size_bytes: int, now_ms: int
    ) -> None:
        if client.terminating:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if not client.may_push(now_ms) and not terminating:
            self._throttled.add()
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if subscription_id != client.subscription_id:
            self._unknown.add()
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if codec not in (Codec.NONE, *CODECS):
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if size_bytes > self.max_bytes:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)

    def _client(self, instance_id: bytes, context: RequestContext, now_ms: int) -> ClientInstance:
        """Return the client with an id: a new one, or one that is updated if the subscriptions have changed. The caller
        holds the lock.
        """
        client = self._clients.get(instance_id)
        version = self.configs.version
        if client is None or client.version != version:
            client = self._new_client(instance_id, context, version)
            lost = self._clients.put(client)
            if lost is not None:
                self._values.forget(lost.id)
        self._clients.seen(client, now_ms)
        return client

    def _new_client(self, instance_id: bytes, context: RequestContext, version: int) -> ClientInstance:
        attributes = attributes_of(uuid_text(instance_id), context)
        matching = [each for each in self.configs.subscriptions() if each.matches(attributes)]
        names = {name for each in matching for name in each.metrics}
        metrics = (ALL_METRICS,) if ALL_METRICS in names else tuple(sorted(names))
        interval_ms = min((each.interval_ms for each in matching), default=DEFAULT_INTERVAL_MS)
        return ClientInstance(
            instance_id,
            owner_of(context),
            (context.client_id or "")[:MAX_CLIENT_ID_CHARS],
            version,
            metrics,
            min(interval_ms, DEFAULT_INTERVAL_MS),
        )

    def expire(self, now_ms: int) -> None:
        """Remove clients that were silent for three intervals."""
        with self._lock:
            for client in self._clients:
                if now_ms - client.seen_ms > max(_MIN_EXPIRY_MS, 3 * client.interval_ms):
                    self._clients.remove(client.id)
                    self._values.forget(client.id)

    def _samples(self) -> Iterator[tuple[dict[str, str], float]]:
        with self._lock:
            found = self._values.latest(MAX_REPORTED_CLIENTS)
        for instance_id, client_id, values in found:
            for (name, attributes), value in values.items():
                labels = {
                    "client_instance_id": uuid_text(instance_id),
                    "client_id": client_id,
                    "metric": name,
                    "attributes": ",".join(f"{key}={text}" for key, text in attributes),
                }
                yield labels, value


def open_telemetry(server: ServerContext, store: Store, max_bytes: int) -> ClientTelemetry:
    """Return the telemetry of a broker, with the stored subscriptions. Raises StoreError."""
    configs = ClientMetricsConfigs(store)
    configs.load()
    metrics = server.services.metrics
    return ClientTelemetry(configs, server.clock, server.scheduler, server.random_bytes, max_bytes, metrics)
