"""Each rule of each conformance suite finds a part that breaks it.

This file has a good part of each kind, and tables with broken variants: each differs from the good part in one thing,
and is named by the rule that must find it. Broken transports and authenticators are in `broken_channels.py`.
"""

import sys
import threading
from dataclasses import replace

import pytest

from klamm import (
    ConnectionGate,
    KafkaPrincipal,
    Refuse,
    RequestFilter,
    RequestObserver,
    ServerExtension,
    Throttle,
)
from klamm.acl import AclOperation, Authorizer, ResourceType, Verdict
from klamm.dispatch import Move, ProcessorAssigner
from klamm.testing import (
    Decision,
    check_api_set,
    check_assigner,
    check_authenticator,
    check_authorizer,
    check_credential_store,
    check_extension,
    check_filter,
    check_gate,
    check_observer,
    check_sasl_mechanism,
    check_scheduler,
    check_throttle,
    check_transport,
)
from klamm.testing.conformance import (
    authentication,
    authorizers,
    connections,
    dispatch,
    life_cycle,
    requests,
    rules,
    sasl,
    servers,
    transports,
)
from klamm.wire.api_keys import ApiKey
from klamm.wire.messages import heartbeat, metadata, produce
from klamm.wire.records import encode_batch
from klamm_dispatch.schedulers import Fifo
from klamm_echo.echo import Echo
from tests.contract import broken_channels
from tests.contract.broken_channels import block, changed, one_thread
from tests.contract.test_filter_records import TakesBytesAlone, Unpacks

ALICE = KafkaPrincipal("alice")


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(rules, "PATIENCE_S", 0.25)


# ---- the life cycle, shown with an extension


class Beside(ServerExtension):
    def open(self, server):
        self.server = server


def in_background(self, server):
    threading.Thread(target=block, name="left-behind", daemon=True).start()


def failing_timer(self, server):
    server.scheduler.schedule(10, lambda: 1 / 0)


def raising_metric(self, server):
    server.metrics.gauge("kafka.server:type=x,name=Y", "A number.", lambda: 1 / 0)


class Mutable:
    value = 1

    def __repr__(self):
        return f"Mutable({self.value})"


def grow(self, server):
    self.settings.value += 1


ONE = Beside(None)
LIFE_CYCLE = {
    "fits_its_contract": changed(Beside, ready=lambda self, more: None),
    "can_be_made_again": lambda settings: ONE,
    "opens_and_closes": changed(Beside, close=lambda self: 1 / 0),
    "ends_its_threads": changed(Beside, open=in_background),
    "leaves_no_timer_that_fails": changed(Beside, open=failing_timer),
    "takes_changes_in_any_order": changed(Beside, reconfigure=lambda self, settings: None),
    "leaves_its_settings_alone": changed(Beside, open=grow),
    "its_metrics_can_be_read": changed(Beside, open=raising_metric),
}
EXTENSION = {
    "stands_by_a_server": changed(Beside, stopping=block),
    "describes_where_it_is": changed(Beside, ready_file_entries=lambda self: {"at": object()}),
}


# ---- gates and throttles


class Gate(ConnectionGate):
    """A gate that admits at most three connections at a time."""

    def __init__(self, settings=None):
        super().__init__(settings)
        self.lock, self.count = threading.Lock(), 0

    def admit(self, address):
        with self.lock:
            if self.count == 3:
                return Refuse("too_many")
            self.count += 1
        return None

    def release(self, address):
        with self.lock:
            self.count -= 1


def count_refused(self, address):
    self.count += 1
    return Refuse("too_many") if self.count > 3 else None


def no_release_after(self, settings):
    self.release = None
    return True


GATE = {
    "decides_in_the_types_of_the_contract": changed(Gate, admit=lambda self, address: Refuse("Too many!")),
    "gives_back_what_closes": changed(Gate, admit=count_refused),
    "is_notified_of_authentication": changed(Gate, authenticated=lambda self, address: 1 / 0),
    "is_called_from_several_threads": changed(Gate, admit=one_thread("admit")),
    "releases_after_it_changed": changed(Gate, reconfigure=no_release_after),
}


class Charging(Throttle):
    def charge(self, context, size_bytes, seconds):
        return 0


def note_delay(self, context, size_bytes, seconds):
    context.throttle_time_ms = 7
    return 0


THROTTLE = {
    "says_whether_it_is_active": changed(Charging, active=1),
    "charges_in_milliseconds": changed(Charging, charge=lambda self, context, size_bytes, seconds: 0.5),
    "forgets_with_time": changed(Charging, charge=lambda self, context, size_bytes, seconds: 5),
    "changes_no_request": changed(Charging, charge=note_delay),
    "charges_from_several_threads": changed(Charging, charge_records=one_thread("charge_records")),
}

# ---- authorizers


class Reading(Authorizer):
    """An authorizer that allows everyone to read, and denies all else."""

    def authorize(self, context, operation, resource_type, resource_name, *, log_if_denied=True):
        return operation is AclOperation.READ

    def authorize_by_resource_type(self, context, operation, resource_type):
        return operation is AclOperation.READ


def note_decision(self, context, operation, resource_type, resource_name, *, log_if_denied=True):
    context.connection.state["decided"] = True
    return operation is AclOperation.READ


READ = Decision("User:alice", AclOperation.READ, ResourceType.TOPIC, "orders", True)
AUTHORIZER = {
    "decides_true_or_false": changed(Reading, authorize=lambda self, *question, log_if_denied=True: None),
    "decides_alike_unlogged": changed(Reading, authorize=lambda self, *question, log_if_denied=True: log_if_denied),
    "says_what_decided": changed(Reading, decide=lambda self, *question, log_if_denied=True: Verdict(granted=True)),
    "agrees_with_itself_about_types": changed(Reading, authorize_by_resource_type=lambda self, *question: False),
    "decides_as_expected": changed(Reading, authorize=lambda self, *question, log_if_denied=True: False),
    "leaves_the_request_alone": changed(Reading, authorize=note_decision),
    "decides_from_several_threads": changed(Reading, authorize=one_thread("authorize")),
    "keeps_acls_or_says_that_it_does_not": changed(
        Reading, acls=lambda self, wanted: [], create_acls=lambda self, bindings: [None]
    ),
}

# ---- filters and observers


class Passing(RequestFilter):
    api_keys = (ApiKey.METADATA,)


SHARED = metadata.MetadataRequest(topics=[])


def spoil(self, message, context):
    message.topics = 7
    return message


def drop_records(self, message, context):
    for topic in message.topic_data:
        for partition in topic.partition_data:
            partition.records = bytes(encode_batch([]))
    return message


FILTER = {
    "names_its_apis": changed(Passing, api_keys=("Metadata",)),
    "passes_requests_of_the_same_class": changed(Passing, on_request=lambda self, message, context: None),
    "passes_responses_of_the_same_class": changed(Passing, on_response=lambda self, response, context: None),
    "passes_what_can_be_encoded": changed(Passing, on_request=spoil),
    "does_not_block_unless_it_says_so": changed(Passing, on_request=one_thread("on_request"), on_response=block),
    "filters_from_several_threads": changed(Passing, on_request=one_thread("on_request")),
    "keeps_no_message": changed(Passing, on_request=lambda self, message, context: SHARED),
    "takes_records_in_every_codec": changed(
        Passing, api_keys=(ApiKey.PRODUCE,), blocking=True, on_request=drop_records
    ),
    "takes_records_of_files": changed(
        Passing, api_keys=(ApiKey.FETCH,), blocking=True, on_response=TakesBytesAlone.on_response
    ),
    "unpacks_no_bomb": changed(Passing, api_keys=(ApiKey.PRODUCE,), blocking=True, on_request=Unpacks.on_request),
}
OBSERVER = {
    "takes_what_happens": changed(RequestObserver, session_expired=lambda self, connection: 1 / 0),
    "announces_apis": changed(RequestObserver, announced_api_keys=[-7]),
    "changes_nothing": changed(RequestObserver, completed=lambda self, event: setattr(event.request, "topics", [])),
    "is_notified_from_several_threads": changed(RequestObserver, connection_opened=one_thread("connection_opened")),
}

# ---- dispatch


class First(ProcessorAssigner):
    def assign(self, address, loads):
        return 0


def lose_one(self):
    super(type(self), self).take()
    return super(type(self), self).take()


def wake_twice(self):
    self._queue.put(None)
    self._queue.put("not None")


def handled_by_main(self, request, busy_ns):
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("another thread")


ASSIGNER = {
    "assigns_a_processor_that_there_is": changed(First, assign=lambda self, address, loads: len(loads)),
    "says_how_often_it_rebalances": changed(First, rebalance_interval_ms=-1),
    "moves_connections_that_there_are": changed(First, rebalance=lambda self, loads, found: [Move("c", 0)]),
}
SCHEDULER = {
    "loses_and_repeats_no_request": changed(Fifo, take=lose_one),
    "refuses_what_it_has_no_room_for": changed(Fifo, offer=lambda self, request: not self._queue.put(request)),
    "counts_what_waits": changed(Fifo, size=lambda self: 0 if self._queue.qsize() < 3 else 9),
    "wakes_one_for_each_call": changed(Fifo, wake=wake_twice),
    "waits_for_a_request": changed(Fifo, take=lambda self: self._queue.get() if self._queue.qsize() else None),
    "serves_several_threads": changed(Fifo, handled=handled_by_main),
}

# ---- handler sets


def api(self, **fields):
    (one, *_) = [each for each in super(type(self), self).handlers() if each.api_key == ApiKey.METADATA]
    return [replace(one, **fields)]


def handling(handle):
    return lambda self: api(self, load=lambda: (metadata, handle))


def only_once(self, server):
    if (server.data_dir / "mark").exists():
        raise RuntimeError("opened twice")
    (server.data_dir / "mark").touch()


def wrong_field(request, context):
    return metadata.MetadataResponse(brokers=7)


def always_answering(self):
    (one,) = api(self, api_key=ApiKey.PRODUCE, name="Produce", min_version=3, max_version=12)
    return [replace(one, load=lambda: (produce, lambda request, context: produce.ProduceResponse()))]


def wrong_for_each_topic(request, context):
    return metadata.MetadataResponse(topics=[metadata.MetadataResponseTopic(name=7) for _ in request.topics or ()])


API_SET = {
    "names_the_apis_that_it_serves": changed(Echo, handlers=lambda self: api(self, max_version=99)),
    "describes_itself": changed(Echo, describe=lambda self: "two\nlines"),
    "answers_every_version": changed(Echo, handlers=handling(lambda request, context: heartbeat.HeartbeatResponse())),
    "answers_what_acks_wants": changed(Echo, handlers=always_answering),
    "does_not_block_unless_it_says_so": changed(Echo, handlers=handling(block)),
    "answers_can_be_encoded": changed(Echo, handlers=handling(wrong_field)),
    "forgets_connections": changed(Echo, connection_closed=lambda self, connection: 1 / 0),
    "goes_on_where_it_stopped": changed(Echo, open=only_once),
}

SUITES = {
    "life_cycle": (check_extension, Beside, LIFE_CYCLE, life_cycle.LIFE_CYCLE, {"settings": Mutable()}),
    "extension": (check_extension, Beside, EXTENSION, servers.EXTENSION_RULES, {}),
    "gate": (check_gate, Gate, GATE, connections.GATE_RULES, {}),
    "throttle": (check_throttle, Charging, THROTTLE, connections.THROTTLE_RULES, {}),
    "authorizer": (check_authorizer, Reading, AUTHORIZER, authorizers.AUTHORIZER_RULES, {"decisions": [READ]}),
    "filter": (check_filter, Passing, FILTER, requests.FILTER_RULES, {}),
    "observer": (check_observer, RequestObserver, OBSERVER, requests.OBSERVER_RULES, {}),
    "assigner": (check_assigner, First, ASSIGNER, dispatch.ASSIGNER_RULES, {}),
    "scheduler": (check_scheduler, Fifo, SCHEDULER, dispatch.SCHEDULER_RULES, {}),
    "api_set": (check_api_set, Echo, API_SET, servers.API_SET_RULES, {}),
    "authenticator": (
        check_authenticator,
        broken_channels.Naming,
        broken_channels.AUTHENTICATOR,
        authentication.AUTHENTICATOR_RULES,
        {"playbooks": broken_channels.PLAYBOOKS},
    ),
    "mechanism": (
        check_sasl_mechanism,
        broken_channels.Ticket,
        broken_channels.MECHANISM,
        sasl.MECHANISM_RULES,
        {"playbooks": broken_channels.TICKETS},
    ),
    "store": (
        check_credential_store,
        broken_channels.Store,
        broken_channels.STORE,
        sasl.STORE_RULES,
        {"passwords": {"alice": "secret"}},
    ),
    "transport": (
        check_transport,
        broken_channels.PlaintextTransport,
        broken_channels.TRANSPORT,
        transports.TRANSPORT_RULES,
        {},
    ),
}


@pytest.mark.parametrize("suite", SUITES)
def test_the_good_part_passes(suite):
    check, good, _broken, _rules, options = SUITES[suite]
    check(good, **options)


# A broken part may raise an exception on a thread of the suite.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("suite", "rule"), [(suite, rule) for suite, what in SUITES.items() for rule in what[2]])
def test_a_rule_finds_what_breaks_it(monkeypatch, suite, rule):
    check, _good, broken, all_rules, options = SUITES[suite]
    module = sys.modules[check.__module__]
    names = [name for name, value in vars(module).items() if value is all_rules and name != "LIFE_CYCLE"]
    monkeypatch.setattr(module, *(names or ["EXTENSION_RULES"]), [one for one in all_rules if one.__name__ == rule])
    with pytest.raises(AssertionError) as found:
        check(broken[rule], **options)
    message = str(found.value)
    assert message.startswith("the ")
    assert f" breaks the rule {rule}: expected: " in message
    assert " But: " in message


@pytest.mark.parametrize("suite", SUITES)
def test_every_rule_has_a_part_that_breaks_it(suite):
    _check, _good, broken, all_rules, _options = SUITES[suite]
    common = () if suite == "life_cycle" else life_cycle.LIFE_CYCLE
    assert list(broken) == [rule.__name__ for rule in all_rules if rule not in common]


def test_handlers_get_requests_whose_lists_have_elements():
    with pytest.raises(AssertionError, match="breaks the rule answers_can_be_encoded"):
        check_api_set(changed(Echo, handlers=handling(wrong_for_each_topic)))
