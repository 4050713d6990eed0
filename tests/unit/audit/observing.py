"""An observer and all parts that it uses, without threads. A test drives them by hand, and the clock stands still."""

import contextlib
import json

from klamm import (
    Address,
    ConnectionContext,
    ErrorCode,
    KafkaPrincipal,
    ListenerContext,
    RequestContext,
    RequestEvent,
    RequestOutcome,
    ServerServices,
    StageTimes,
)
from klamm.acl import AclOperation, ResourceType, Verdict
from klamm.testing import ManualClock
from klamm.wire.messages import heartbeat, produce
from klamm.wire.response_errors import first_error
from klamm_spark.observer.audit import AuditFilter, AuditObserver
from klamm_spark.observer.sink import AuditSink
from klamm_spark.settings.audit import AuditSettings
from klamm_spark.spool.layout import open_segments, sealed_segments
from tests.audit_spool import read_segment
from tests.unit.audit.test_spool import BadDisk

ALICE = KafkaPrincipal("alice")


OPENED = []
"""The sinks that a test has made. Their files are closed at the end of the test."""


def close_files():
    """Close the files of all sinks, even if their disks fail, because `select` accepts no descriptor above 1023."""
    while OPENED:
        sink = OPENED.pop()
        for close in (*(stream.spool.close for stream in sink.streams.values()), sink.journal.close):
            with contextlib.suppress(Exception):
                close()


class Observing:
    """The observer. `events()` writes all waiting events, and returns the events of the spool."""

    def __init__(self, folder, *, filters=True, **settings):
        self.clock = ManualClock()
        self.files = BadDisk()
        self.services = ServerServices(self.clock, random_bytes=bytes)
        self.settings = AuditSettings(spool=folder, node="node-1", **settings)
        self.sink = AuditSink(self.settings, self.services, self.files)
        OPENED.append(self.sink)
        self.sink._start = self.sink.open
        self.services.shared.once(f"klamm_spark.observer.audit:{folder.absolute()}", lambda: self.sink)
        self.listener = ListenerContext(
            "front", Address("0.0.0.0", 9092), Address("h", 9092), "SASL_SSL", self.services, transport="ssl"
        )
        if filters:
            AuditFilter(self.settings).open(self.listener)
        self.observer = AuditObserver(self.settings)
        self.observer.open(self.listener)
        self.ports = iter(range(50_000, 60_000))

    def connection(self, principal=ALICE, host="10.0.0.9"):
        return ConnectionContext(
            f"c-{next(self.ports)}",
            self.listener,
            Address("127.0.0.1", 9092),
            Address(host, 50_000),
            principal,
            "librdkafka",
            "2.8",
            opened_ns=self.clock.monotonic_ns(),
            transport_details={"tls_version": "TLSv1.3", "tls_cipher": "AES", "tls_server_name": "kafka.example"},
            sasl_mechanism="PLAIN",
        )

    def request(
        self,
        connection,
        message,
        response,
        *,
        version=0,
        client_id="client",
        size=100,
        answered=50,
        decisions=(),
        outcome=RequestOutcome.ANSWERED,
    ):
        """Return a finished request, answered two milliseconds after its arrival and one after its handler started."""
        context = RequestContext(connection, None, message.API_KEY, version, 7, client_id, size)
        if decisions:
            context.decisions = [
                (AclOperation[operation], ResourceType[kind], name, granted, Verdict(granted))
                for operation, kind, name, granted in decisions
            ]
        now_ns = self.clock.monotonic_ns()
        done_ns = now_ns - 500_000
        times = StageTimes(now_ns - 2_000_000, now_ns - 1_000_000, done_ns, done_ns, done_ns, now_ns)
        return RequestEvent(context, outcome, first_error(response), message, response, answered, times)

    def complete(self, *events):
        now_ns = self.clock.monotonic_ns()
        self.observer.completed_many([event._replace(times=event.times._replace(end_ns=now_ns)) for event in events])

    def flush(self):
        self.sink.run_once()

    def events(self):
        self.flush()
        events = []
        for stream in (self.sink.requests, self.sink.security, self.sink.administration):
            paths = [*sealed_segments(stream.spool.path), *open_segments(stream.spool.path)]
            events += [json.loads(line) for path in paths for line in read_segment(path).splitlines()]
        return sorted(events, key=lambda event: event["time_us"])

    def requests(self):
        return [event for event in self.events() if event["kind"] == "request"]


def ping(audit, connection, **options):
    return audit.request(connection, heartbeat.HeartbeatRequest("group"), heartbeat.HeartbeatResponse(), **options)


def refused(audit, connection):
    code = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return ping(audit, connection, outcome=RequestOutcome.REFUSED)._replace(error_code=code)


def produced(audit, connection, topic="orders", error=0, records=b"x" * 70, **options):
    data = [produce.PartitionProduceData(0, records), produce.PartitionProduceData(1, records)]
    answers = [produce.PartitionProduceResponse(0, error), produce.PartitionProduceResponse(1, error)]
    return audit.request(
        connection,
        produce.ProduceRequest(acks=1, topic_data=[produce.TopicProduceData(topic, partition_data=data)]),
        produce.ProduceResponse([produce.TopicProduceResponse(topic, partition_responses=answers)]),
        version=9,
        **options,
    )
