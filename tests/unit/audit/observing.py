"""An observer with everything behind it, driven by hand: a clock that stands still, and no thread."""

import json

from klamm import Address, ConnectionContext, KafkaPrincipal, ListenerContext, RequestContext, ServerServices
from klamm.acl import AclOperation, ResourceType
from klamm.testing import ManualClock
from klamm.wire.api_keys import load
from klamm.wire.response_errors import first_error
from klamm_spark.audit import AuditObserver
from klamm_spark.settings import AuditSettings
from klamm_spark.sink import AuditSink
from tests.unit.audit.test_spool import BadDisk

ALICE = KafkaPrincipal("alice")


class Route:
    def __init__(self, name):
        self.name = name


class Observing:
    """`events()` writes what waits and gives all events of the spool."""

    def __init__(self, folder, **settings):
        self.clock = ManualClock()
        self.files = BadDisk()
        self.services = ServerServices(self.clock, random_bytes=bytes)
        self.settings = AuditSettings(spool=folder, node="node-1", **settings)
        self.sink = AuditSink(self.settings, self.services, self.files)
        self.sink._start = self.sink.open
        self.services.shared.once(f"klamm_spark.audit:{folder.absolute()}", lambda: self.sink)
        self.listener = ListenerContext(
            "front", Address("0.0.0.0", 9092), Address("h", 9092), "SASL_SSL", self.services, transport="ssl"
        )
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
        self, connection, message, response, *, version=0, client_id="client", size=100, answered=50, decisions=()
    ):
        """A request that was answered at once, two milliseconds after it came and one after it was taken up."""
        api_key = message.API_KEY
        request = RequestContext(connection, None, api_key, version, 7, client_id, size)
        request.handler = Route(load(api_key).NAME)
        request.frame, request.response, request.response_bytes = message, response, answered
        request.error_code = first_error(response)
        now_ns = self.clock.monotonic_ns()
        request.received_ns, request.handler_start_ns = now_ns - 2_000_000, now_ns - 1_000_000
        request.local_end_ns = request.completed_ns = now_ns - 500_000
        if decisions:
            request.decisions = [
                (AclOperation[operation], ResourceType[kind], name, granted)
                for operation, kind, name, granted in decisions
            ]
        return request

    def complete(self, *requests):
        self.observer.completed_many(list(requests), self.clock.monotonic_ns())

    def flush(self):
        self.sink.run_once()

    def events(self):
        self.flush()
        paths = sorted((*self.sink.spool.path.glob("*.jsonl"), *self.sink.spool.path.glob("*.open")))
        return [json.loads(line) for path in paths for line in path.read_bytes().splitlines()]

    def requests(self):
        return [event for event in self.events() if event["kind"] == "request"]
