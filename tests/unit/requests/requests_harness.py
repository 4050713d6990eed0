"""A processor's request path without a network: frames in, frames out. The test plays the threads."""

import struct
from collections import deque

from klamm import ApiHandler, RequestObserver
from klamm.api.context import ListenerContext, ServerServices
from klamm.metrics.metrics_registry import MetricsRegistry
from klamm.metrics.requests import RequestMetrics, RequestRecorder
from klamm.requests.api_versions import with_api_versions
from klamm.requests.ledger import RequestLedger
from klamm.requests.observers import RequestObservers
from klamm.requests.pipeline import RequestPipeline
from klamm.testing import ManualClock
from klamm.wire.api_keys import spec_of
from klamm.wire.headers import encode_request_header
from klamm.wire.messages import heartbeat, metadata, produce
from tests.unit.network.fakes import connection_context, request_parts

CORRELATION_ID = 77


class Events(RequestObserver):
    """An observer that keeps its notifications."""

    def __init__(self):
        super().__init__(None)
        self.ended = []

    def completed(self, event):
        self.ended.append(event)

    @property
    def outcomes(self):
        return [event.outcome for event in self.ended]


def handler(module, handle, **options):
    """Return an API with all its versions. Its handler does not block by default."""
    return ApiHandler(
        api_key=int(module.API_KEY),
        name=module.NAME,
        min_version=module.VERSIONS.start,
        max_version=module.VERSIONS.stop - 1,
        load=lambda: (module, handle),
        **{"blocking": False} | options,
    )


class Line:
    """A listener with one connection. `queue` has requests that wait for a handler, `delivered` the responses."""

    def __init__(self, *handlers, mode="hybrid", filters=(), observed=True, counted=True, throttles=(), limits=None):
        self.clock = ManualClock()
        self.services = ServerServices(self.clock)
        self.connection = connection_context()
        self.listener: ListenerContext = self.connection.listener
        self.listener.throttles = tuple(throttles)
        self.events = Events()
        self.queue, self.delivered = deque(), deque()
        scheduler = self.services.scheduler
        handlers = with_api_versions(handlers)
        parts = request_parts(self.listener, self.clock, scheduler, handlers, mode, filters, limits=limits)
        self.limits = parts.limits
        self.listener.max_answer_bytes = parts.limits.max_answer_bytes
        if observed:
            observers = RequestObservers([self.events], self.listener.failures)
            parts = type(parts)(**{name: getattr(parts, name) for name in parts.__slots__} | {"observers": observers})
        self.routes = parts.routes
        registry = self.registry = MetricsRegistry()
        self.metrics = RequestMetrics(registry, lambda api_key: spec_of(api_key).name)
        recorder = None
        if counted:
            recorder = self.metrics.add(RequestRecorder(self.routes.served, lambda api_key: False))
        self.recorder = recorder
        self.ledger = RequestLedger(self.clock, self.listener, recorder, None, parts.observers)
        self.pipeline = RequestPipeline(parts, self.ledger, self.queue.append, self.delivered.append)

    def frame(self, message, version, client_id="client"):
        header = encode_request_header(message.API_KEY, version, CORRELATION_ID, client_id)
        return header + message.encode(version)

    def submit(self, message, version=4, frame=None):
        frame = self.frame(message, version) if frame is None else frame
        return self.pipeline.submit(frame, None, self.connection, self.clock.monotonic_ns())

    def metric(self, name):
        """Return a metric of requests, by its labels."""
        full = f"kafka.network:type=RequestMetrics,name={name}"
        (family,) = self.registry.collect(lambda one: one == full)
        return {tuple(sample.labels.values()): sample.value for sample in family.samples}


def response_in(chunks, response_class, version):
    """Return the response in a whole frame."""
    frame = b"".join(bytes(chunk) for chunk in chunks)
    size, correlation_id = struct.unpack_from(">ii", frame)
    assert size == len(frame) - 4
    assert correlation_id == CORRELATION_ID
    tagged = response_class.API_KEY != 18 and version >= spec_of(response_class.API_KEY).flexible_from
    return response_class.decode(version, frame, 9 if tagged else 8)


def ping():
    return heartbeat.HeartbeatRequest("group", 1, "member")


def produced(acks):
    data = [produce.PartitionProduceData(0, b"records")]
    return produce.ProduceRequest(acks=acks, topic_data=[produce.TopicProduceData("t", partition_data=data)])


HEARTBEAT, METADATA, PRODUCE = heartbeat, metadata, produce
