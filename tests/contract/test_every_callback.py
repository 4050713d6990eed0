"""Every callback of every contract raises once. The test finds callbacks by introspection, so it covers new ones.

At the start the result is a StartError that names the part, and everything is closed again. Later the exception costs
only connections or requests of the moment: no thread ends, and earlier and later clients are served.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import socket
import threading
from dataclasses import dataclass

import pytest

from klamm import (
    ApiSet,
    AuthenticationStep,
    Authenticator,
    AuthenticatorFactory,
    ConnectionGate,
    KafkaPrincipal,
    ListenerPart,
    Part,
    Provider,
    Refuse,
    RequestFilter,
    RequestObserver,
    ServerExtension,
    Throttle,
    Transport,
    handles,
    hookimpl,
    setting,
)
from klamm.api import authentication, dispatch, extension, filters, gates, observer, throttles, transport
from klamm.dispatch import ProcessorAssigner
from klamm.runtime import PLATFORM
from klamm.server.server import StartError
from klamm.server.serving import banner, ready_file_entries
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.api_keys import ApiKey
from klamm.wire.messages import api_versions, fetch, heartbeat, metadata
from klamm_dispatch.schedulers import Fifo
from klamm_plaintext.transport import PlaintextTransportLayer
from tests.waiting import klamm_threads, wait_until

REFUSED, PENDING, EXPIRING, MALLORY = b"refused", b"pending", b"expiring", b"mallory"


class Fault:
    """The callback that raises now, and how often it has raised."""

    at = ""
    raised = 0
    refuse_next = False
    refuse_offers = 0
    lock = threading.Lock()

    @classmethod
    def maybe(cls, callback):
        if cls.at != callback:
            return
        with cls.lock:
            cls.raised += 1
        if callback == "RequestScheduler.take":
            # Without requests from the queue no request would be served, so only the first call raises.
            cls.at = ""
        raise ZeroDivisionError(f"{callback}, on purpose")


def callbacks(contract):
    """Return the names that a plugin may define: functions and properties."""
    life_cycle = vars(Part) if issubclass(contract, Part) else {}
    return [
        name
        for name, value in {**life_cycle, **vars(contract)}.items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
    ]


def failing(base):
    """Return a subclass that can raise in each callback of its contracts."""

    def raising(owner, name):
        callback = f"{owner.__name__}.{name}"
        if isinstance(inspect.getattr_static(owner, name), property):

            def value(self):
                Fault.maybe(callback)
                return getattr(super(made, self), name)

            return property(value)

        def method(self, *arguments, **named):
            Fault.maybe(callback)
            return getattr(super(made, self), name)(*arguments, **named)

        return method

    owners = [owner for owner in base.__mro__ if owner in CONTRACTS]
    # Callbacks of the life cycle are named after the contract itself, e.g. `Throttle.open`.
    body = {name: raising(owner, name) for owner in reversed(owners) for name in callbacks(owner)}
    made = type(base.__name__, (base,), {**body, "__module__": base.__module__})
    return made


CONTRACTS = [
    ApiSet,
    *(
        value
        for contracts in (authentication, dispatch, extension, filters, gates, observer, throttles, transport)
        for value in vars(contracts).values()
        if inspect.isclass(value)
        and value.__module__ == contracts.__name__
        and callbacks(value)
        # These are klamm's own classes, which no plugin defines.
        and value not in (observer.RequestEvent, observer.StageTimes, filters.EncodedResponse, filters.Release)
        # These are base classes of the contracts.
        and value not in (Part, ListenerPart)
    ),
]
# Other tests make these callbacks raise: test_session_registry.py those of revoked sessions, test_lifecycle.py
# `reconfigure_parts`, test_doctor.py `examine` (for `klamm doctor`), and test_gateway.py `splice_from`.
NOT_CALLED_HERE = {
    "ApiSet.examine",
    "TransportLayer.abort",
    "TransportLayer.end_session",
    "TransportLayer.splice_from",
} | {f"{contract.__name__}.reconfigure_parts" for contract in CONTRACTS if issubclass(contract, Part)}
CALLBACKS = [
    callback
    for contract in CONTRACTS
    for name in callbacks(contract)
    if (callback := f"{contract.__name__}.{name}") not in NOT_CALLED_HERE
]
NEEDED_AT_START = {
    "ApiSet.features",
    "ApiSet.handlers",
    "ApiSet.handlers_of",
    "ApiSet.listener_opened",
    "ApiSet.topic_names",
    "AuthenticatorFactory.handlers",
    "ProcessorAssigner.rebalance_interval_ms",
    "RequestFilter.api_keys",
    "RequestFilter.blocking",
    "RequestObserver.announced_api_keys",
    "ServerExtension.ready",
    *(f"{contract.__name__}.open" for contract in CONTRACTS if issubclass(contract, Part)),
}
NOT_ON_EVERY_PLATFORM = set() if PLATFORM.has_sendfile else {"TransportLayer.send_file"}
OWN = ["AuthenticationStep.pending", "ApiHandler.handle"]


@dataclass(frozen=True, slots=True)
class Settings:
    version: int = setting(0, doc="Something that may change.")


@failing
class Wire(Transport):
    def wrap(self, sock, peer):
        return Layer(sock)


@failing
class Layer(PlaintextTransportLayer):
    pass


@failing
class Naming(AuthenticatorFactory):
    def authenticator(self, connection, transport):
        return Name()


@failing
class Name(Authenticator):
    """An authenticator whose first frame is a name.

    Heartbeat v0 causes a second authentication, with a frame that is sent back.
    """

    def __init__(self):
        self.name = None

    @property
    def complete(self):
        return self.name is not None

    @property
    def principal(self):
        return KafkaPrincipal(self.name)

    def receive(self, frame):
        name = bytes(frame)
        if name == MALLORY:
            return AuthenticationStep(send=[b"no"], failed="never heard of")
        if name == PENDING:
            return AuthenticationStep(pending=self._decide)
        self.name = name.decode(errors="replace")
        return AuthenticationStep(send=[b"welcome"], complete=True)

    @staticmethod
    def _decide(resume):
        Fault.maybe("AuthenticationStep.pending")
        threading.Thread(target=resume).start()

    def resume(self):
        self.name = "resumed"
        return AuthenticationStep(send=[b"welcome"], complete=True)

    @property
    def session_expires_ns(self):
        return 1 if self.name == EXPIRING.decode() else None


@failing
class Gate(ConnectionGate):
    def admit(self, address):
        if Fault.refuse_next:
            Fault.refuse_next = False
            return Refuse("unlucky")
        return None

    def release(self, address):
        pass


@failing
class Charging(Throttle):
    def charge(self, context, size_bytes, seconds):
        return 0


@failing
class Watching(RequestObserver):
    @property
    def announced_api_keys(self):
        return {ApiKey.HEARTBEAT}


@failing
class Filtering(RequestFilter):
    pass


class Asking(RequestFilter):
    """A filter that asks the next filter, or the handler set, for the name of a topic."""

    api_keys = (ApiKey.HEARTBEAT,)

    def open(self, listener):
        self.names = listener.topic_names(self)

    def on_request(self, message, context):
        assert self.names(bytes(16), context) is None
        return message


@failing
class Moving(ProcessorAssigner):
    @property
    def rebalance_interval_ms(self):
        return 5

    def assign(self, address, loads):
        return 0


@failing
class Queue(Fifo):
    def offer(self, request):
        if Fault.refuse_offers:
            Fault.refuse_offers -= 1
            return False
        return super().offer(request)


@failing
class Beside(ServerExtension):
    def open(self, server):
        pass

    def close(self):
        pass


class Region:
    """A region of a file, as a log returns it for Fetch."""

    def __init__(self, file):
        self.file, self.position, self.size_bytes = file, 0, 40_000

    def fileno(self):
        return self.file.fileno()

    def read_into(self, position, buffer):
        return PLATFORM.preadv(self.fileno(), [buffer], position)

    def close(self):
        self.file.close()


@failing
class Serving(ApiSet):
    def open(self, host):
        self.path = host.data_dir / "records"
        self.path.write_bytes(bytes(40_000))

    def topic_names(self):
        return lambda topic_id: None

    @handles(metadata, versions=metadata.VERSIONS, blocking=False)
    def metadata(self, request, context):
        return metadata.MetadataResponse(cluster_id="c")

    @handles(heartbeat, versions=heartbeat.VERSIONS)
    def heartbeat(self, request, context):
        Fault.maybe("ApiHandler.handle")
        context.charge_mutations(1, strict=False)
        return heartbeat.HeartbeatResponse()

    @handles(fetch, versions=range(4, 13), blocking=False)
    def fetch(self, request, context):
        assert context.max_record_bytes is None
        assert context.may_send_records(40_000)
        partition = fetch.PartitionData(0, 0, 0, records=Region(self.path.open("rb")))
        return fetch.FetchResponse(responses=[fetch.FetchableTopicResponse("t", partitions=[partition])])


class Plugin:
    @hookimpl
    def klamm_transports(self):
        yield Provider("wire", f"{__name__}:Wire", settings=Settings)

    @hookimpl
    def klamm_authenticators(self):
        yield Provider("naming", f"{__name__}:Naming", settings=Settings)

    @hookimpl
    def klamm_connection_gates(self):
        yield Provider("gate", f"{__name__}:Gate", settings=Settings)

    @hookimpl
    def klamm_throttles(self):
        yield Provider("charging", f"{__name__}:Charging", settings=Settings)

    @hookimpl
    def klamm_request_filters(self):
        yield Provider("filtering", f"{__name__}:Filtering", settings=Settings)
        yield Provider("asking", f"{__name__}:Asking")

    @hookimpl
    def klamm_request_observers(self):
        yield Provider("watching", f"{__name__}:Watching", settings=Settings)

    @hookimpl
    def klamm_processor_assigners(self):
        yield Provider("moving", f"{__name__}:Moving", settings=Settings)

    @hookimpl
    def klamm_request_schedulers(self):
        yield Provider("queue", f"{__name__}:Queue", settings=Settings)

    @hookimpl
    def klamm_extensions(self):
        yield Provider("beside", f"{__name__}:Beside", settings=Settings)

    @hookimpl
    def klamm_api_sets(self):
        yield Provider("serving", f"{__name__}:Serving", settings=Settings)


def make(version=0):
    parts = (
        'transport = "wire"\napi_set = "serving"\nassigner = "moving"\nprocessors = 2\n'
        'gates = ["gate"]\nfilters = ["asking", "filtering"]\nobservers = ["watching"]\nbind = "127.0.0.1:0"\n'
        "connection_failed_authentication_delay_ms = 5\n"
    )
    # The end of a handler that cannot be woken has a short deadline.
    server = (
        '[server]\nrequest_scheduler = "queue"\nextensions = ["beside"]\nio_threads = 2\nshutdown_deadline_ms = 300\n'
    )
    tables = "".join(
        f"[listeners.{{0}}.{part}]\nversion = {version}\n"
        for part in ("wire", "gate", "moving", "filtering", "watching")
    )
    own = f"[listeners.named.naming]\nversion = {version}\n[listeners.named.charging]\nversion = {version}\n"
    own += f"[server.queue]\nversion = {version}\n"
    own += "".join(f"[{part}]\nversion = {version}\n" for part in ("serving", "beside"))
    return (
        server
        + f'[listeners.named]\nauthenticator = "naming"\nthrottles = ["charging"]\n{parts}{tables.format("named")}'
        + f"[listeners.open]\n{parts}{tables.format('open')}{own}"
        + '[listeners.bare]\nbind = "127.0.0.1:0"\napi_set = "serving"\ngates = []\nthrottles = []\n'
    )


@pytest.fixture
def build(tmp_path):
    def build(version=0):
        file = tmp_path / f"klamm-{version}.toml"
        file.write_text(make(version))
        return EmbeddedServer(file=file, plugins=[Plugin()])

    Fault.at, Fault.raised, Fault.refuse_next, Fault.refuse_offers = "", 0, False, 0
    yield build
    Fault.at = ""


def connect(server, listener, name=b"alice", timeout_s=10.0):
    client = RawClient(server.address(listener), timeout_s=timeout_s)
    if listener == "named":
        client.send_frame(name)
        client.receive_frame()
    return client


def talk(client):
    assert client.call(api_versions.ApiVersionsRequest("x", "1", "c", 1), 5).error_code == 0
    for _ in range(4):
        assert client.call(metadata.MetadataRequest(topics=None), 12).cluster_id == "c"
    assert client.call(heartbeat.HeartbeatRequest(group_id="g"), 4).error_code == 0
    size = len(client.call(fetch.FetchRequest(), 4).responses[0].partitions[0].records)
    assert size == 40_000


def use_everything(server):
    """Cause a call of each callback, one connection after the other. A failure ends only its own connection."""
    for listener, name in (
        ("bare", b""),
        ("open", b""),
        ("named", b"bob"),
        ("named", PENDING),
        ("named", EXPIRING),
        ("named", MALLORY),
        ("named", REFUSED),
    ):
        Fault.refuse_next = name == REFUSED
        with contextlib.suppress(OSError, AssertionError):
            client = connect(server, listener, name, timeout_s=1)
            with client:
                talk(client)
    Fault.refuse_next = False
    if "RequestScheduler" in Fault.at:
        Fault.refuse_offers = 2
        with contextlib.suppress(OSError, AssertionError), connect(server, "open", timeout_s=2) as client:
            client.call(heartbeat.HeartbeatRequest(group_id="g"), 4)
    list(server.server.services.metrics.collect())
    assert "serving" in banner(server.server, 0)
    ready_file_entries(server.server.extensions)
    if "rebalance" in Fault.at:
        wait_until(lambda: Fault.raised)


def start_with_fault(build, callback):
    """Start the server while a callback raises. Return True if the callback was called."""
    before = klamm_threads()
    server = build()
    Fault.at = callback
    problem = ""
    try:
        server.start()
    except StartError as error:
        problem = str(error)
        for listener in server.server.listeners:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(tuple(listener.context.bound), timeout=60)
    finally:
        Fault.at = ""
        server.stop()
    assert klamm_threads() == before
    assert bool(problem) == (callback in NEEDED_AT_START)
    if problem:
        assert callback in problem
        assert any(name in problem for name in (__name__, "api set serving", "extension beside", "scheduler queue")), (
            problem
        )


@pytest.mark.parametrize("callback", [*CALLBACKS, *OWN])
def test_a_raising_callback_affects_no_other_client(build, caplog, callback):
    start_with_fault(build, callback)
    before = klamm_threads()
    server = build().start()
    try:
        early = [connect(server, listener) for listener in ("open", "named")]
        for client in early:
            talk(client)
        running = klamm_threads()
        Fault.at = callback
        use_everything(server)
        server.server.reload()
        server.server.reconfigure(build(version=1).plan)
        for io_threads in (1, 2):
            plan = copy.copy(server.server.plan)
            object.__setattr__(plan, "server", copy.copy(plan.server))
            object.__setattr__(plan.server, "io_threads", io_threads)
            server.server.resize(plan)
        Fault.at = ""
        assert set(klamm_threads()) >= {name for name in running if "handler" not in name}
        for listener in ("open", "named"):
            with connect(server, listener) as late:
                talk(late)
        for client in early:
            # The failure may have met these connections themselves, e.g. when the server looked into their transports.
            with contextlib.suppress(ConnectionError):
                talk(client)
            client.close()
        Fault.at = callback
    finally:
        server.stop()
        Fault.at = ""
        for _ in range(4):
            server.server.request_channel.wake_handler()
    assert Fault.raised or callback in NOT_ON_EVERY_PLATFORM, "nothing here calls it"
    assert "turn failed" not in caplog.text
    wait_until(lambda: klamm_threads() == before)
