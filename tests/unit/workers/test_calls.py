"""Tests of the parent's knowledge of the workers' listeners, and of functions that it calls in workers."""

import json
import queue
import socket
from types import SimpleNamespace

import pytest

from klamm import Address, ListenerContext, ServerServices
from klamm.acl import AclOperation, ResourceType
from klamm.workers.calls import WorkerCalls
from klamm.workers.child import ParentLink
from klamm.workers.listener_facts import facts_of, listener_of
from klamm.workers.messages import MessageReader, encode


class Workers:
    """Two workers, of which the second does not answer."""

    def __init__(self):
        self.asked = []

    def __call__(self, *arguments, one=False):
        self.asked.append(arguments)
        return {1: "done"} if one else {1: "done", 2: None}


def test_a_function_is_called_in_one_worker_or_in_all():
    workers = Workers()
    calls = WorkerCalls(workers)
    assert calls.call("mine:function", (7,), 2.0) == {1: "done", 2: None}
    assert calls.call_one("mine:function", (8,), 2.0) == "done"
    assert workers.asked == [("mine:function", (7,), 2.0), ("mine:function", (8,), 2.0)]


def test_without_a_worker_there_is_no_answer():
    assert WorkerCalls(lambda *_arguments, **_options: {}).call_one("mine:function", (), 1.0) is None


def test_the_facts_of_a_listener_pass_through_json():
    services = ServerServices()
    listener = ListenerContext(
        "front",
        Address("127.0.0.1", 9092),
        Address("kafka.example.com", 443),
        "SASL_SSL",
        services,
        authorizer=object(),
        parts=("transport ssl of klamm 1",),
        renames_topics=True,
        api_set="gateway",
        transport="ssl",
    )
    found = listener_of(json.loads(json.dumps(facts_of(listener))), services)
    assert facts_of(found) == facts_of(listener)
    assert (str(found.bound), str(found.advertised)) == ("127.0.0.1:9092", "kafka.example.com:443")
    assert (found.renames_topics, found.security_protocol, found.services) == (True, "SASL_SSL", services)


def test_a_listener_of_the_workers_allows_nothing_in_the_parent():
    facts = facts_of(ListenerContext("front", Address("127.0.0.1", 1), Address("127.0.0.1", 1)))
    assert listener_of(facts, ServerServices()).authorizer is None
    authorizer = listener_of(facts | {"is_authorized": True}, ServerServices()).authorizer
    assert not authorizer.decide(None, AclOperation.READ, ResourceType.TOPIC, "t").granted
    assert not authorizer.authorize_by_resource_type(None, AclOperation.READ, ResourceType.TOPIC)


def unfit(services):
    """Return an answer that cannot be written as JSON."""
    return {1, 2}


def fit(services):
    return 1


@pytest.mark.interpreted
def test_an_answer_that_is_not_json_is_none_and_later_calls_are_answered(caplog):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(120)
        ParentLink(theirs, SimpleNamespace(services=ServerServices()), queue.SimpleQueue()).start()
        reader, answers = MessageReader(), []
        for number, name in enumerate(("unfit", "fit")):
            ours.sendall(encode("connections", ask=number, action=f"{__name__}:{name}", arguments=[]))
        while len(answers) < 2:
            answers += [(message["ask"], message["answer"]) for message in reader.feed(ours.recv(65_536))]
    assert answers == [(0, None), (1, 1)]
    assert f"the action {__name__}:unfit failed" in caplog.text
