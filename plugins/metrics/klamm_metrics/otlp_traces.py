"""The observer `otlp_traces`: exports some requests as spans of OpenTelemetry.

klamm calls `completed` on processors' threads, which only put the request into a queue. A thread of its own exports
them.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from klamm import ListenerContext, RequestEvent, RequestObserver, RequestOutcome
from klamm.wire.api_keys import ApiKey
from klamm.wire.batch_headers import HEADER_BYTES, read_header
from klamm.wire.compression import Codec
from klamm.wire.errors import ErrorCode, KafkaError
from klamm.wire.records import iterate_records
from klamm_metrics.otlp import SCOPE, ExportLoop, resource
from klamm_metrics.otlp_settings import OtlpTracesSettings

# klamm_metrics.otlp comes first: if the extra is missing, its import raises an error that names the extra.
# isort: split
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_MAX_LINKS: Final = 8
_MAX_RECORDS: Final = 100
_MAX_BATCH_BYTES: Final = 16 << 10
_MAX_NAME: Final = 249
_EXPORTED: Final = 512
_FINE: Final = (RequestOutcome.ANSWERED, RequestOutcome.NO_ANSWER)
_STAGES: Final = ("request queue", "local", "remote", "response queue", "send")


class _Traced(NamedTuple):
    """A sampled request, without its messages and its context, which may hold large frames."""

    name: str
    attributes: dict[str, str | int]
    parents: tuple[str, ...]
    times: tuple[int, ...]


class TracesExporter(RequestObserver):
    """The observer `otlp_traces`. It exports a random share of a listener's requests.

    Each request is a span, and its stages are spans below it.
    """

    def open(self, listener: ListenerContext) -> None:
        settings: OtlpTracesSettings = self.settings
        services = listener.services
        self._clock = services.clock
        self._random_bytes = services.random_bytes
        self._chance = random.Random(services.random_bytes(8))  # noqa: S311 - it chooses samples
        self._resource = resource()
        self._waiting: deque[_Traced] = deque()
        self._dropped = services.metrics.counter(
            "klamm:type=OtlpTraces,name=DroppedTotal",
            "Traced requests that the collector did not get, because it is too slow or does not answer.",
            listener=listener.name,
        )
        self._exporter = OTLPSpanExporter(settings.endpoint or None)
        self._loop = ExportLoop(
            services, f"klamm-otlp-traces-{listener.name}", settings.interval_ms, self._export, self._exporter
        )

    def completed(self, event: RequestEvent) -> None:
        """Add the request to the sample, with the probability `sample_ratio`."""
        settings: OtlpTracesSettings = self.settings
        if self._chance.random() >= settings.sample_ratio:
            return
        if len(self._waiting) >= settings.max_queued:
            self._dropped.add()
            return
        wall_offset_ns = self._clock.wall_us() * 1_000 - self._clock.monotonic_ns()
        is_produce = event.context.api_key == ApiKey.PRODUCE and event.request is not None
        self._waiting.append(
            _Traced(
                event.context.api_name,
                _attributes(event),
                _parents(event.request) if is_produce else (),
                tuple(each + wall_offset_ns for each in event.times),
            )
        )

    def close(self) -> None:
        self._loop.close()

    def _export(self) -> None:
        for _ in range(len(self._waiting) // _EXPORTED + 1):
            taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), _EXPORTED))]
            spans = [span for traced in taken for span in self._spans(traced)]
            if spans and self._exporter.export(spans) is not SpanExportResult.SUCCESS:
                self._dropped.add(len(taken))

    def _spans(self, traced: _Traced) -> Iterator[ReadableSpan]:
        trace_id = int.from_bytes(self._random_bytes(16), "big")
        whole = self._context(trace_id)
        times, error = traced.times, str(traced.attributes.get("error.type", ""))
        yield ReadableSpan(
            traced.name,
            whole,
            resource=self._resource,
            attributes=traced.attributes,
            links=[Link(each) for each in map(_context_of, traced.parents) if each.is_valid],
            kind=SpanKind.SERVER,
            status=Status(StatusCode.ERROR, error) if error else Status(),
            start_time=times[0],
            end_time=times[-1],
            instrumentation_scope=SCOPE,
        )
        for name, start_ns, end_ns in zip(_STAGES, times, times[1:], strict=False):
            if end_ns > start_ns:
                yield ReadableSpan(
                    name,
                    self._context(trace_id),
                    whole,
                    self._resource,
                    start_time=start_ns,
                    end_time=end_ns,
                    instrumentation_scope=SCOPE,
                )

    def _context(self, trace_id: int) -> SpanContext:
        span_id = int.from_bytes(self._random_bytes(8), "big")
        return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _error_of(event: RequestEvent) -> str:
    if event.error_code:
        try:
            return ErrorCode(event.error_code).name
        except ValueError:
            # E.g. an error of a newer Kafka behind a gateway.
            return str(event.error_code)
    return "" if event.outcome in _FINE else event.outcome.value


def _attributes(event: RequestEvent) -> dict[str, str | int]:
    """Return the attributes, with the names of OpenTelemetry's semantic conventions if they define one."""
    context, error = event.context, _error_of(event)
    found: dict[str, str | int] = {
        "messaging.system": "kafka",
        "messaging.operation.name": context.api_name,
        "messaging.client.id": (context.client_id or "")[:_MAX_NAME],
        "client.address": context.client_address.host,
        "client.port": context.client_address.port,
        "user.name": str(context.principal)[:_MAX_NAME],
        "klamm.listener": context.listener.name,
        "klamm.api_version": context.api_version,
        "klamm.outcome": event.outcome.value,
        "klamm.request_bytes": context.size_bytes,
        "klamm.response_bytes": event.response_bytes,
        "klamm.throttle_time_ms": context.throttle_time_ms,
    }
    topic, group = _only_topic(event.request), getattr(event.request, "group_id", None)
    if error:
        found["error.type"] = error
    if isinstance(topic, str):
        found["messaging.destination.name"] = topic[:_MAX_NAME]
    if isinstance(group, str):
        found["messaging.consumer.group.name"] = group[:_MAX_NAME]
    return found


def _only_topic(request: Any) -> Any:
    """Return the topic's name if the request names one topic alone. The number of topics costs no time."""
    for field in ("topics", "topic_data"):
        topics = getattr(request, field, None)
        if isinstance(topics, list) and len(topics) == 1:
            topic = topics[0]
            return topic if isinstance(topic, str) else getattr(topic, "name", None) or getattr(topic, "topic", None)
    return None


def _parents(request: Any) -> tuple[str, ...]:
    """Return the different values of the header `traceparent` in the first records of the first batch, at most eight.

    It reads only a small, uncompressed batch, because it runs on a processor's thread.
    """
    for topic in request.topic_data or ():
        for partition in topic.partition_data or ():
            return tuple(islice(dict.fromkeys(_parents_in(partition.records)), _MAX_LINKS))
    return ()


def _parents_in(records: Any) -> Iterator[str]:
    if records is None or not HEADER_BYTES <= len(records) <= _MAX_BATCH_BYTES:
        return
    try:
        header = read_header(records)
        if header.codec is not Codec.NONE:
            return
        body = memoryview(records)[HEADER_BYTES : header.size_bytes]
        for record in islice(iterate_records(header, body), _MAX_RECORDS):
            for name, value in record.headers:
                if name == "traceparent" and value is not None and len(value) <= 64:
                    yield bytes(value).decode("ascii", "replace")
    except KafkaError:
        # The batch is invalid, so the handler has refused it.
        return


def _context_of(traceparent: str) -> SpanContext:
    found = TraceContextTextMapPropagator().extract({"traceparent": traceparent})
    return get_current_span(found).get_span_context()
