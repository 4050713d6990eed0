"""Measurements of requests: Kafka's `RequestMetrics`.

Each processor has a `RequestRecorder`, to which only the processor's thread adds. Every request is counted. But timing
a request takes half a dozen reads of the clock. So all requests are timed only for APIs whose requests wait for data or
other clients. For all other APIs a sample is timed, weighted by the number of requests that it represents.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

from klamm.api.observer import StageTimes
from klamm.metrics.metrics_registry import Histogram, HistogramValue, Labels, MetricsRegistry
from klamm.wire.error_counts import ErrorCounts
from klamm.wire.errors import ErrorCode

# On each processor, about one request of each API and version is timed per interval. So all rare requests are timed,
# and timing takes less than a hundredth of the processor's time even if there are many requests.
SAMPLE_INTERVAL_NS: Final = 5_000_000
MAX_EVERY: Final = 1023

UNKNOWN_VERSION: Final = -1

_GROUP: Final = "kafka.network:type=RequestMetrics,name="
# The bounds are 2^4 to 2^25 microseconds, i.e. 16 µs to 34 s, and 2^5 to 2^27 bytes.
_TIME_BITS: Final = range(4, 26)
_SIZE_BITS: Final = range(5, 28)


class ApiTimes:
    """The stage times of one API's requests in microseconds, and their sizes in bytes.

    The stages add up to the total, as in Kafka.
    """

    __slots__ = (
        "local",
        "remote",
        "request_bytes",
        "request_queue",
        "response_queue",
        "response_send",
        "throttle",
        "total",
    )

    def __init__(self) -> None:
        self.request_queue = Histogram()
        self.local = Histogram()
        self.remote = Histogram()
        self.throttle = Histogram()
        self.response_queue = Histogram()
        self.response_send = Histogram()
        self.total = Histogram()
        self.request_bytes = Histogram()

    def record(self, times: StageTimes, throttle_time_ms: int, request_bytes: int, weight: int) -> None:
        """Add a request that has ended, and that represents `weight` requests."""
        received_ns, start_ns, local_end_ns, completed_ns, dequeued_ns, end_ns = times
        self.request_queue.add((start_ns - received_ns) // 1000, weight)
        self.local.add((local_end_ns - start_ns) // 1000, weight)
        self.remote.add((completed_ns - local_end_ns) // 1000, weight)
        if throttle_time_ms:
            self.throttle.add(throttle_time_ms * 1000, weight)
        else:
            self.throttle.counts[0] += weight
        self.response_queue.add((dequeued_ns - completed_ns) // 1000, weight)
        self.response_send.add((end_ns - dequeued_ns) // 1000, weight)
        self.total.add((end_ns - received_ns) // 1000, weight)
        self.request_bytes.add(request_bytes, weight)

    def merge(self, other: ApiTimes) -> None:
        """Add the times and sizes of another object."""
        for name in self.__slots__:
            getattr(self, name).merge(getattr(other, name))


_STAGES: Final = {
    "RequestQueueTimeMs": (
        "request_queue",
        "Milliseconds for which a request waited until a handler, or the processor, took it.",
    ),
    "LocalTimeMs": ("local", "Milliseconds in the handler."),
    "RemoteTimeMs": ("remote", "Milliseconds of waiting for others: data, members, another server."),
    "ThrottleTimeMs": ("throttle", "Milliseconds for which the client was throttled."),
    "ResponseQueueTimeMs": ("response_queue", "Milliseconds for which a response waited until the processor took it."),
    "ResponseSendTimeMs": ("response_send", "Milliseconds until the whole response was handed to the socket."),
    "TotalTimeMs": ("total", "Milliseconds from reading a request to its response being sent."),
}


class RequestCount:
    """The number of requests of one API and version on one processor.

    Each counted request subtracts 1 from `until_sample`; below 0 a sample is due.
    """

    __slots__ = ("_always", "_every", "_next_sample", "_sampled_ns", "_stood_for", "until_sample")

    def __init__(self, *, always: bool) -> None:
        self.until_sample = 0
        self._next_sample = 0
        self._stood_for = 0
        self._every = 1
        self._sampled_ns = 0
        self._always = always

    @property
    def count(self) -> int:
        """Return the number of counted requests."""
        return self._next_sample - self.until_sample

    def add(self, requests: int) -> None:
        """Count requests that are not sampled here."""
        self.until_sample -= requests

    def sample(self, now_ns: int) -> int:
        """Return the weight of the request that was counted last, which becomes a sample.

        The weight is the number of requests that this sample represents. If samples follow each other too quickly, they
        become rarer, otherwise more frequent again. The step from one sample to the next is always odd (3, 7, 15, …),
        so that batches of a round size are not always sampled at the same position.
        """
        ordinal = self.count
        weight = ordinal - self._stood_for
        if weight <= 0:
            return 0
        self._stood_for = ordinal
        if self._always:
            return weight
        elapsed_ns = now_ns - self._sampled_ns
        if elapsed_ns < SAMPLE_INTERVAL_NS:
            self._every = min(2 * self._every + 1, MAX_EVERY)
        else:
            self._every = self._every * SAMPLE_INTERVAL_NS // elapsed_ns | 1
        self._sampled_ns = now_ns
        self._wait_until(ordinal - 1 + self._every)
        return weight

    def one(self) -> int:
        """Return the weight of a request that is timed although no sample is due: 1."""
        self._stood_for += 1
        return 1

    def time_all(self) -> None:
        """Time every request from now on."""
        self._always = True
        self._wait_until(0)

    def _wait_until(self, next_sample: int) -> None:
        count = self.count
        self._next_sample = next_sample
        self.until_sample = next_sample - count


class ApiCounts:
    """The counts of one API, and its times. `by_version` begins with version 0; `unknown` is for unserved versions."""

    __slots__ = ("by_version", "times", "unknown")

    def __init__(self, versions: range, *, always: bool = False) -> None:
        self.times = ApiTimes()
        self.by_version = [RequestCount(always=always) for _ in range(versions.stop)]
        self.unknown = RequestCount(always=always)

    def merge(self, other: ApiCounts) -> None:
        """Add the counts and times of another processor, which may serve more versions."""
        self.times.merge(other.times)
        self.unknown.add(other.unknown.count)
        self.by_version += [RequestCount(always=False) for _ in other.by_version[len(self.by_version) :]]
        for own, count in zip(self.by_version, other.by_version, strict=False):
            own.add(count.count)


class _CountsByApi(dict[int, ApiCounts]):
    """The counts of each API, made at the API's first request. This makes a start a tenth faster."""

    def __init__(self, served: Iterable[tuple[int, range]], always_timed: Callable[[int], bool]) -> None:
        super().__init__()
        self._served = dict(served)
        self._always_timed = always_timed

    def __missing__(self, api_key: int) -> ApiCounts:
        counts = self[api_key] = ApiCounts(self._served[api_key], always=self._always_timed(api_key))
        return counts


class RequestRecorder:
    """The counts of one processor. `apis` maps the keys of APIs that have had a request to their counts.

    If `always_timed` returns True for an API, all of its requests are timed.
    """

    def __init__(self, served: Iterable[tuple[int, range]], always_timed: Callable[[int], bool]) -> None:
        self.errors: dict[tuple[int, int], int] = {}
        self.failed: dict[int, int] = {}
        self.apis: dict[int, ApiCounts] = _CountsByApi(served, always_timed)

    def count_errors(self, api_key: int, errors: ErrorCounts) -> None:
        """Count the errors of a response."""
        self.failed[api_key] = self.failed.get(api_key, 0) + 1
        for code, count in errors.items():
            key = (api_key, code)
            self.errors[key] = self.errors.get(key, 0) + count

    def merge(self, other: RequestRecorder) -> None:
        """Add the counts of another processor."""
        for key, count in other.errors.items():
            self.errors[key] = self.errors.get(key, 0) + count
        for api_key, count in other.failed.items():
            self.failed[api_key] = self.failed.get(api_key, 0) + count
        for api_key, counts in other.apis.items():
            if api_key not in self.apis:
                self.apis[api_key] = ApiCounts(range(0))
            self.apis[api_key].merge(counts)


def _empty_recorder() -> RequestRecorder:
    return RequestRecorder((), lambda _api_key: False)


class RequestMetrics:
    """All recorders of a server. The counts of processors that have ended stay, because a counter must never fall."""

    def __init__(self, registry: MetricsRegistry, name_of: Callable[[int], str]) -> None:
        # Protects the list of recorders. Each recorder belongs to one thread.
        self._lock = threading.Lock()
        self._recorders: list[RequestRecorder] = []
        self._ended = _empty_recorder()
        self._name_of = name_of
        self._clean: dict[int, int] = {}
        registry.register(_GROUP + "RequestsPerSec", "counter", "Requests, by API and version.", self._requests)
        registry.register(
            _GROUP + "ErrorsPerSec",
            "counter",
            "Error codes in responses, by API; NONE counts the responses that carry none.",
            self._errors,
        )
        registry.register(
            _GROUP + "RequestBytes",
            "histogram",
            "Bytes of a request without its length.",
            lambda: self._histograms("request_bytes", 1.0, _SIZE_BITS),
        )
        for name, (attribute, doc) in _STAGES.items():
            registry.register(_GROUP + name, "histogram", doc, self._stage(attribute))

    def add(self, recorder: RequestRecorder) -> RequestRecorder:
        """Add a processor's recorder, and return it."""
        with self._lock:
            self._recorders.append(recorder)
        return recorder

    def end(self, recorder: RequestRecorder) -> None:
        """Replace the recorder of a processor that has ended; its counts stay."""
        with self._lock:
            self._recorders.remove(recorder)
            # A new object, because another thread may be reading the one before together with `recorder`.
            ended = _empty_recorder()
            ended.merge(self._ended)
            ended.merge(recorder)
            self._ended = ended

    def _all(self) -> list[RequestRecorder]:
        with self._lock:
            return [self._ended, *self._recorders]

    def _counts(self) -> Iterable[tuple[int, int, int]]:
        for recorder in self._all():
            for api_key, api in list(recorder.apis.items()):
                for version, count in enumerate(api.by_version):
                    if count.count:
                        yield api_key, version, count.count
                if api.unknown.count:
                    yield api_key, UNKNOWN_VERSION, api.unknown.count

    def _requests(self) -> Iterable[tuple[Labels, float]]:
        counts: dict[tuple[int, int], int] = {}
        for api_key, version, count in self._counts():
            counts[api_key, version] = counts.get((api_key, version), 0) + count
        for (api_key, version), count in sorted(counts.items()):
            yield (
                {
                    "request": self._name_of(api_key),
                    "version": str(version) if version != UNKNOWN_VERSION else "unknown",
                },
                count,
            )

    def _errors(self) -> Iterable[tuple[Labels, float]]:
        counts: dict[tuple[int, int], int] = {}
        for recorder in self._all():
            for (api_key, code), count in list(recorder.errors.items()):
                counts[api_key, code] = counts.get((api_key, code), 0) + count
            for api_key, failed in list(recorder.failed.items()):
                counts[api_key, 0] = counts.get((api_key, 0), 0) - failed
        for api_key, _, count in self._counts():
            counts[api_key, 0] = counts.get((api_key, 0), 0) + count
        for (api_key, code), count in sorted(counts.items()):
            if code == 0:
                # A request may be counted before its errors, and a counter must never fall.
                count = self._clean[api_key] = max(self._clean.get(api_key, 0), count)
            yield {"request": self._name_of(api_key), "error": _error_name(code)}, count

    def _stage(self, attribute: str) -> Callable[[], Iterable[tuple[Labels, HistogramValue]]]:
        # Recorded in microseconds, reported in milliseconds.
        return lambda: self._histograms(attribute, 0.001, _TIME_BITS)

    def _histograms(self, attribute: str, scale: float, bits: range) -> Iterable[tuple[Labels, HistogramValue]]:
        merged: dict[int, Histogram] = {}
        for recorder in self._all():
            for api_key, api in list(recorder.apis.items()):
                if any(api.times.total.counts):
                    merged.setdefault(api_key, Histogram()).merge(getattr(api.times, attribute))
        for api_key, histogram in sorted(merged.items()):
            yield {"request": self._name_of(api_key)}, histogram.snapshot(scale, bits)


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"UNKNOWN_{code}"
