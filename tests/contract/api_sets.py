"""The plugin `Plugin` of the contract tests: a handler set, a gate, an observer, a throttle and an authenticator.

The fixture `start` of `conftest.py` installs the plugin in a server. A test chooses in its requests, or in settings,
what the parts do: answer, wait, raise an exception, block, or return a value of a wrong type.
"""

import threading
from dataclasses import dataclass

from klamm import (
    ANONYMOUS,
    ApiSet,
    AuthenticationStep,
    Authenticator,
    AuthenticatorFactory,
    ConnectionGate,
    Delay,
    ErrorCode,
    KafkaError,
    Provider,
    Refuse,
    RequestObserver,
    Throttle,
    handles,
    hookimpl,
    setting,
)
from klamm.wire.messages import find_coordinator, heartbeat, init_producer_id, metadata, sync_group


def without_prefix(name):
    return name.rpartition(".")[2]


class Trying(ApiSet):
    """A handler set whose requests say what their handlers do.

    Metadata answers at once. Heartbeat runs on a handler thread and does what the request's `group_id` says. The test
    itself answers SyncGroup later: its contexts are in `parked`. FindCoordinator answers with a host of as many bytes
    as the request's key says. Handlers ignore a prefix of `group_id` and of the key that ends in a dot, because filters
    add prefixes.
    """

    def open(self, server):
        self.server = server
        self.parked = []
        self.arrived = threading.Semaphore(0)
        self.unanswered = threading.Semaphore(0)
        self.release = threading.Event()
        self.seen = []

    @handles(metadata, versions=metadata.VERSIONS, blocking=False)
    def metadata(self, request, context):
        host, port = context.listener.advertised
        self.seen.append(context)
        return metadata.MetadataResponse(
            brokers=[metadata.MetadataResponseBroker(1, host, port)], cluster_id=threading.current_thread().name
        )

    @handles(heartbeat, versions=heartbeat.VERSIONS)
    def heartbeat(self, request, context):
        what = without_prefix(request.group_id)
        if what == "raise":
            raise ZeroDivisionError("on purpose")
        if what == "kafka-error":
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if what == "garbage":
            return 42
        if what == "none":
            return None
        if what == "no-response":
            self.unanswered.release()
            return context.no_response()
        if what == "wrong-shape":
            return heartbeat.HeartbeatResponse(error_code="not a number")
        if what == "close":
            context.close_connection("the handler wants it so")
            return context.later()
        if what == "block":
            self.arrived.release()
            assert self.release.wait(60)
        if what == "exit":
            raise SystemExit("on purpose")
        return heartbeat.HeartbeatResponse(error_code=0)

    @handles(sync_group, versions=sync_group.VERSIONS, blocking=False)
    def sync_group(self, request, context):
        if without_prefix(request.group_id) == "at-once":
            context.respond(sync_group.SyncGroupResponse(assignment=b"at once"))
            return context.later()
        self.parked.append(context)
        self.arrived.release()
        return context.later()

    @handles(find_coordinator, versions=range(0, 4), blocking=False)
    def find_coordinator(self, request, context):
        return find_coordinator.FindCoordinatorResponse(host="x" * int(without_prefix(request.key)))

    @handles(init_producer_id, versions=init_producer_id.VERSIONS, blocking=True, inline_max_bytes=60)
    def init_producer_id(self, request, context):
        return init_producer_id.InitProducerIdResponse(producer_id="handler" in threading.current_thread().name)


@dataclass(frozen=True, slots=True)
class FussySettings:
    say: str = setting("admit", doc="What the gate answers.")


class FussyGate(ConnectionGate):
    """A gate that does what its setting `say` says, and counts its calls."""

    def open(self, listener):
        self.admitted = self.released = self.failed = self.ready = 0
        self.asked = []
        GATES.append(self)

    def admit(self, address):
        self.asked.append(address)
        if self.settings.say == "raise":
            raise ZeroDivisionError("on purpose")
        if self.settings.say == "refuse":
            return Refuse("fussy")
        if self.settings.say == "delay":
            return Delay(50, "fussy")
        if self.settings.say == "pause" and len(self.asked) < 3:
            return Delay(20, "fussy", pause_acceptor=True)
        self.admitted += 1
        return None

    def authenticated(self, address):
        self.ready += 1

    def authentication_failed(self, address):
        self.failed += 1

    def release(self, address):
        self.released += 1
        if self.settings.say == "raise-later":
            raise ZeroDivisionError("on purpose")


GATES = []


class TellTale(RequestObserver):
    """An observer that records every call in `events`. With `say=raise` each call also raises an exception."""

    def open(self, listener):
        self.events = []
        OBSERVERS.append(self)

    def _note(self, *event):
        self.events.append(event)
        if self.settings.say == "raise":
            raise ZeroDivisionError("on purpose")

    def connection_opened(self, connection):
        self._note("opened", connection)

    def connection_closed(self, connection, reason):
        self._note("closed", connection, reason)

    def completed(self, event):
        self._note("completed", event)


OBSERVERS = []


@dataclass(frozen=True, slots=True)
class SlowSettings:
    throttle_time_ms: int = setting(0, doc="What every request earns; negative raises.")


class SlowDown(Throttle):
    """A throttle that returns the same throttle time for every request."""

    def charge(self, context, size_bytes, seconds):
        if self.settings.throttle_time_ms < 0:
            raise ZeroDivisionError("on purpose")
        return self.settings.throttle_time_ms


class Endless(AuthenticatorFactory):
    """A factory of authenticators that send each frame back and never complete."""

    def authenticator(self, connection, transport):
        return NeverSatisfied()


class NeverSatisfied(Authenticator):
    complete = False
    principal = ANONYMOUS

    def receive(self, frame):
        return AuthenticationStep([frame])


class Plugin:
    """The plugin, as an entry point would name it."""

    @hookimpl
    def klamm_api_sets(self):
        yield Provider("trying", "tests.contract.api_sets:Trying")

    @hookimpl
    def klamm_authenticators(self):
        yield Provider("endless", "tests.contract.api_sets:Endless")

    @hookimpl
    def klamm_connection_gates(self):
        yield Provider("fussy", "tests.contract.api_sets:FussyGate", settings=FussySettings)

    @hookimpl
    def klamm_request_observers(self):
        yield Provider("tell_tale", "tests.contract.api_sets:TellTale", settings=FussySettings)

    @hookimpl
    def klamm_throttles(self):
        yield Provider("slow_down", "tests.contract.api_sets:SlowDown", settings=SlowSettings)
