"""`ClientQuotaManager`: the client quotas of one server, and how much of them clients use.

Follows Kafka's class of that name, `ClientRequestQuotaManager` and `ControllerMutationQuotaManager`. All listeners
share one instance. The threads that run requests call it; one lock protects it, and each call holds it for
microseconds.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from klamm import RequestContext, ServerServices, Throttle
from klamm.runtime import Rate, TokenBucket
from klamm.shared import CLIENT_QUOTAS, Row
from klamm_throttling.limits import Limit, QuotaLimits
from klamm_throttling.sensors import PERIOD_MS, RateSensor, Sensor, SensorKey, SharedUse, TokenSensor
from klamm_throttling.throttling_settings import QUOTA_KEYS, ClientQuotaSettings

PRODUCE: Final = 0
_PRODUCER, _CONSUMER, _REQUEST, _MUTATION = QUOTA_KEYS
_EXPIRE_AFTER_MS: Final = 3_600_000
_EXPIRY_PERIOD_MS: Final = 60_000
MAX_CLIENT_ID_CHARS: Final = 1_024
"""The number of characters of a client id that count. Longer client ids with the same beginning count as one.

Their use is kept in memory, so the limit bounds it.
"""
# Kafka's unit is percent: 100 is the whole time of one thread.
_PERCENT: Final = 100.0

S = TypeVar("S", bound=Sensor)


class Usage(NamedTuple):
    """The use of one sensor, for metrics. `value` is in the unit of its quota."""

    key: str
    user: str
    client_id: str
    value: float
    utilization: float


class ThrottleCounts:
    """Requests that a quota has throttled, and their total throttle time."""

    __slots__ = ("requests", "time_ms")

    def __init__(self) -> None:
        self.requests = 0
        self.time_ms = 0

    def add(self, throttle_time_ms: int) -> None:
        """Count one more throttled request."""
        self.requests += 1
        self.time_ms += throttle_time_ms


class ClientSensors:
    """The sensors of one user and client id; None for a quota that the client does not have."""

    __slots__ = ("consumer", "mutation", "producer", "request")

    def __init__(
        self,
        producer: RateSensor | None,
        consumer: RateSensor | None,
        request: RateSensor | None,
        mutation: TokenSensor | None,
    ) -> None:
        self.producer = producer
        self.consumer = consumer
        self.request = request
        self.mutation = mutation


class ClientQuotaManager:
    """The client quotas of one server and their use. `counts` are by quota key."""

    def __init__(self, services: ServerServices, settings: ClientQuotaSettings) -> None:
        self._clock = services.clock
        self._share = services.worker
        self._shared_use = SharedUse(services.worker)
        self._table = services.shared.table(CLIENT_QUOTAS)
        # Protects sensors, clients and settings. Re-entrant, because a listener that `_notify` calls may call this
        # object.
        self._lock = threading.RLock()
        self.settings = settings
        self.counts = {key: ThrottleCounts() for key in QUOTA_KEYS}
        self._sensors: dict[SensorKey, Any] = {}
        self._clients: dict[tuple[str, str], ClientSensors] = {}
        self._users: dict[Throttle, Callable[[], object]] = {}
        self._limits = QuotaLimits(settings, self._table.rows, self._share)
        self._table.watch(self._quotas_changed)
        services.scheduler.every(_EXPIRY_PERIOD_MS, self._expire)
        if services.worker.counts is not None:
            services.scheduler.every(PERIOD_MS, self._share_use)

    # ---- quotas

    def configure(self, settings: ClientQuotaSettings) -> None:
        """Apply new settings. If the windows change, the use so far is forgotten."""
        with self._lock:
            if _windows(settings) != _windows(self.settings):
                self._sensors.clear()
            self.settings = settings
            self._apply()
        self._notify()

    def _quotas_changed(self, _changes: Mapping[str, Row | None]) -> None:
        with self._lock:
            self._apply()
        self._notify()

    @property
    def has_quotas(self) -> bool:
        """Return True if there is any quota."""
        return bool(self._limits.keys)

    def join(self, user: Throttle, watcher: Callable[[], object]) -> None:
        """Add a listener. From now on `watcher()` is called after each change of quotas, on the thread that makes it.

        Raises ValueError if another listener has different settings.
        """
        if user.settings != self.settings:
            if self._users:
                raise ValueError(
                    "client quotas apply to the whole server: write [client_quota] once, for all listeners"
                )
            self.configure(user.settings)
        self._users = {**self._users, user: watcher}

    def leave(self, user: Throttle) -> None:
        """Remove a listener."""
        self._users = {each: watcher for each, watcher in self._users.items() if each is not user}

    def _notify(self) -> None:
        for watcher in self._users.values():
            watcher()

    def _apply(self) -> None:
        limits = self._limits = QuotaLimits(self.settings, self._table.rows, self._share)
        self._clients = {}
        for (key, user, client_id), sensor in list(self._sensors.items()):
            limit = limits.find(key, user, client_id)
            if limit is None or (limit.user, limit.client_id) != (user, client_id):
                del self._sensors[key, user, client_id]
            else:
                sensor.limit = self._part_of((key, user, client_id), limit)

    def _part_of(self, key: SensorKey, limit: Limit) -> Limit:
        """Return the part of a quota that this worker may use now; in a single process, the whole quota.

        Quotas of mutations are always split equally.
        """
        return limit if key[0] == _MUTATION else self._shared_use.limit(key, limit)

    def _share_use(self) -> None:
        with self._lock:
            parts = {}
            for key in self._sensors:
                limit = self._limits.find(*key)
                if limit is not None:
                    parts[key] = limit
            self._shared_use.publish(self._sensors, parts, self._now_ms())

    # ---- use

    def charge(self, context: RequestContext, size_bytes: int, seconds: float) -> int:
        """Implement `klamm.Throttle.charge`."""
        client = self._client(context)
        producer = client.producer if context.api_key == PRODUCE else None
        request = client.request if seconds else None
        if producer is None and request is None:
            return 0
        now_ms = self._now_ms()
        produce_ms = request_ms = 0
        with self._lock:
            if producer is not None:
                produce_ms = producer.record(size_bytes, now_ms)
            if request is not None:
                request_ms = request.record(seconds * _PERCENT, now_ms)
            if produce_ms > request_ms:
                self.counts[_PRODUCER].add(produce_ms)
            elif request_ms:
                self.counts[_REQUEST].add(request_ms)
        return max(produce_ms, request_ms)

    def max_record_bytes(self, context: RequestContext) -> int | None:
        """Implement `klamm.Throttle.max_record_bytes`, as Kafka's `getMaxValueInQuotaWindow`."""
        consumer = self._client(context).consumer
        if consumer is None:
            return None
        settings = self.settings
        whole_windows_s = (settings.quota_window_num - 1) * settings.quota_window_size_seconds
        return max(1, int(consumer.limit.value * whole_windows_s))

    def charge_records(self, context: RequestContext, size_bytes: int) -> int:
        """Implement `klamm.Throttle.charge_records`. A client over its quota of request time gets no records either."""
        client = self._client(context)
        if not size_bytes or (client.consumer is None and client.request is None):
            return 0
        now_ms = self._now_ms()
        with self._lock:
            request_ms = client.request.throttle_time_ms(now_ms) if client.request is not None else 0
            if request_ms or client.consumer is None:
                return request_ms
            throttle_time_ms = client.consumer.record_if_allowed(size_bytes, now_ms)
            if throttle_time_ms:
                self.counts[_CONSUMER].add(throttle_time_ms)
            return throttle_time_ms

    def charge_mutations(self, context: RequestContext, count: int, strict: bool) -> int:
        """Implement `klamm.Throttle.charge_mutations`."""
        mutation = self._client(context).mutation
        if mutation is None:
            return 0
        now_ms = self._now_ms()
        with self._lock:
            take = mutation.take_if_allowed if strict else mutation.take
            throttle_time_ms = take(count, now_ms)
            if throttle_time_ms:
                self.counts[_MUTATION].add(throttle_time_ms)
            return throttle_time_ms

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // 1_000_000

    # ---- clients

    def _client(self, context: RequestContext) -> ClientSensors:
        if not self._limits.keys:
            return _UNLIMITED
        key = (context.connection.principal.name, context.client_id or "")
        return self._clients.get(key) or self._new_client(key)

    def _new_client(self, key: tuple[str, str]) -> ClientSensors:
        if len(key[1]) > MAX_CLIENT_ID_CHARS:
            key = (key[0], key[1][:MAX_CLIENT_ID_CHARS])
        with self._lock:
            if len(self._clients) >= self.settings.max_tracked_clients:
                # Drop all entries. The next requests make them again, and no use is lost, because the sensors have it.
                self._clients = {}
            client = self._clients[key] = ClientSensors(
                self._sensor(_PRODUCER, key, self._rate_sensor),
                self._sensor(_CONSUMER, key, self._rate_sensor),
                self._sensor(_REQUEST, key, self._request_sensor),
                self._sensor(_MUTATION, key, self._token_sensor),
            )
            return client

    def _sensor(self, key: str, client: tuple[str, str], make: Callable[[Limit], S]) -> S | None:
        limit = self._limits.find(key, *client)
        if limit is None:
            return None
        shared_by = (key, limit.user, limit.client_id)
        sensor: S | None = self._sensors.get(shared_by)
        if sensor is None:
            if len(self._sensors) >= len(QUOTA_KEYS) * self.settings.max_tracked_clients:
                self._forget_half()
            sensor = self._sensors[shared_by] = make(self._part_of(shared_by, limit))
        return sensor

    def _rate_sensor(self, limit: Limit, longest_ms: int = 0) -> RateSensor:
        rate = Rate(self.settings.quota_window_num, self.settings.quota_window_size_seconds * 1000)
        return RateSensor(limit, rate, self._now_ms(), longest_ms)

    def _request_sensor(self, limit: Limit) -> RateSensor:
        return self._rate_sensor(limit, self.settings.quota_window_size_seconds * 1000)

    def _token_sensor(self, limit: Limit) -> TokenSensor:
        settings = self.settings
        bucket = TokenBucket(settings.controller_quota_window_num, settings.controller_quota_window_size_seconds * 1000)
        return TokenSensor(limit, bucket, self._now_ms())

    # ---- expiry

    def _forget_half(self) -> None:
        newest = sorted(self._sensors.items(), key=lambda item: item[1].used_ms)[len(self._sensors) // 2 :]
        self._keep(newest)

    def _expire(self) -> None:
        limit_ms = self._now_ms() - _EXPIRE_AFTER_MS
        with self._lock:
            live = [item for item in self._sensors.items() if item[1].used_ms > limit_ms]
            if len(live) < len(self._sensors):
                self._keep(live)

    def _keep(self, sensors: Iterable[tuple[SensorKey, Any]]) -> None:
        self._sensors = dict(sensors)
        # Drop the entries, because they may refer to removed sensors.
        self._clients = {}

    # ---- metrics

    def most_used(self) -> list[Usage]:
        """Return the `metrics_max_clients` sensors with the highest utilization."""
        now_ms = self._now_ms()
        with self._lock:
            usages = [
                Usage(key, user, client_id, sensor.value(now_ms), sensor.utilization(now_ms))
                for (key, user, client_id), sensor in self._sensors.items()
            ]
        return heapq.nlargest(self.settings.metrics_max_clients, usages, key=lambda usage: usage.utilization)

    @property
    def tracked(self) -> int:
        """The number of sensors."""
        return len(self._sensors)


_UNLIMITED: Final = ClientSensors(None, None, None, None)


def _windows(settings: ClientQuotaSettings) -> tuple[int, ...]:
    return (
        settings.quota_window_num,
        settings.quota_window_size_seconds,
        settings.controller_quota_window_num,
        settings.controller_quota_window_size_seconds,
    )
