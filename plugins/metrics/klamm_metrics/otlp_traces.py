"""The observer `otlp_traces`: sampled requests as spans of OpenTelemetry."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from klamm import ListenerContext, RequestEvent, RequestObserver, RequestOutcome
from klamm.wire.api_keys import ApiKey
from klamm.wire.batch_headers import HEADER_BYTES, read_header
from klamm.wire.compression import Codec
from klamm.wire.errors import ErrorCode, KafkaError
from klamm.wire.named_entities import Entities, entities_of
from klamm.wire.records import iterate_records
from klamm_metrics.otlp import SCOPE, ExportLoop, resource
from klamm_metrics.otlp_settings import OtlpTracesSettings

# If the extra is missing, the import of klamm_metrics.otlp has already raised an error that names it.
# isort: split
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_MAX_LINKS: Final = 8
_MAX_RECORDS: Final = 100
_MAX_BATCH_BYTES: Final = 64 << 10
_EXPORTED: Final = 512
_FINE: Final = (RequestOutcome.ANSWERED, RequestOutcome.NO_ANSWER)
_STAGES: Final = ("request queue", "local", "remote", "response queue", "send")


class _Traced(NamedTuple):
    """A sampled request, without its messages."""

    event: RequestEvent
    named: Entities
    parents: tuple[str, ...]
    wall_offset_ns: int


class TracesExporter(RequestObserver):
    """The observer `otlp_traces`. It exports a share of a listener's requests.

    Each request is a span, with the stages as spans below it. Processors' threads only put the request into a queue.
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
            "Traced requests that were dropped because the collector is too slow.",
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
        named, parents = Entities(), tuple[str, ...]()
        if event.request is not None:
            named = entities_of(event.request, lambda _id: None)
            if event.context.api_key == ApiKey.PRODUCE:
                parents = tuple(_parents(event.request))
        # The messages are not kept, because they may hold large frames.
        self._waiting.append(_Traced(event._replace(request=None, response=None), named, parents, wall_offset_ns))

    def close(self) -> None:
        self._loop.close()

    def _export(self) -> None:
        for _ in range(len(self._waiting) // _EXPORTED + 1):
            count = min(len(self._waiting), _EXPORTED)
            spans = [span for _ in range(count) for span in self._spans(self._waiting.popleft())]
            if spans:
                self._exporter.export(spans)

    def _spans(self, traced: _Traced) -> Iterator[ReadableSpan]:
        trace_id = int.from_bytes(self._random_bytes(16), "big")
        whole = self._context(trace_id)
        event, times = traced.event, [each + traced.wall_offset_ns for each in traced.event.times]
        error = "" if event.outcome in _FINE else event.outcome.value
        if event.error_code:
            error = ErrorCode(event.error_code).name
        yield ReadableSpan(
            event.context.api_name,
            whole,
            resource=self._resource,
            attributes=_attributes(traced) | ({"error.type": error} if error else {}),
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


def _attributes(traced: _Traced) -> dict[str, str | int]:
    """Return the attributes. Their names follow OpenTelemetry's semantic conventions if these have one."""
    event, context = traced.event, traced.event.context
    found: dict[str, str | int] = {
        "messaging.system": "kafka",
        "messaging.operation.name": context.api_name,
        "messaging.client.id": context.client_id or "",
        "client.address": context.client_address.host,
        "client.port": context.client_address.port,
        "user.name": str(context.principal),
        "klamm.listener": context.listener.name,
        "klamm.api_version": context.api_version,
        "klamm.outcome": event.outcome.value,
        "klamm.request_bytes": context.size_bytes,
        "klamm.response_bytes": event.response_bytes,
        "klamm.throttle_time_ms": context.throttle_time_ms,
    }
    if len(traced.named.topics) == 1:
        found["messaging.destination.name"] = next(iter(traced.named.topics))
    if len(traced.named.groups) == 1:
        found["messaging.consumer.group.name"] = next(iter(traced.named.groups))
    return found


def _parents(request: Any) -> Iterator[str]:
    """Yield the values of the header `traceparent` of the first records, each once, at most eight.

    Compressed and large batches are left out, because reading them would take too much of a processor's time.
    """
    found: set[str] = set()
    for topic in request.topic_data or ():
        for partition in topic.partition_data or ():
            for value in _parents_in(partition.records):
                if value not in found:
                    found.add(value)
                    yield value
                if len(found) >= _MAX_LINKS:
                    return


def _parents_in(records: Any) -> Iterator[str]:
    if records is None or not HEADER_BYTES <= len(records) <= _MAX_BATCH_BYTES:
        return
    try:
        header = read_header(records)
        if header.codec is not Codec.NONE:
            return
        body = memoryview(records)[HEADER_BYTES : header.size_bytes]
        for _, record in zip(range(_MAX_RECORDS), iterate_records(header, body), strict=False):
            for name, value in record.headers:
                if name == "traceparent" and value is not None and len(value) <= 64:
                    yield bytes(value).decode("ascii", "replace")
    except KafkaError:
        # The batch is invalid, and the handler has refused it.
        return


def _context_of(traceparent: str) -> SpanContext:
    found = TraceContextTextMapPropagator().extract({"traceparent": traceparent})
    return get_current_span(found).get_span_context()
