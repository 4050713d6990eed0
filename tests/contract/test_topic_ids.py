"""Tests of topic ids in requests: a filter takes their names only from the handler set of its own listener.

Other listeners may lead to hostile clusters, which give any names to the same ids.
"""

import contextlib
import logging

import pytest

import klamm_filters
from klamm import ApiSet, Provider, handles, hookimpl
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages import metadata as metadata_module
from klamm.wire.messages import produce as produce_module
from klamm.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from klamm.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from tests.audit_spool import events_of
from tests.contract.filtered import served
from tests.contract.gateway_nodes import FakeNode, free_ports, gateway
from tests.contract.test_record_filters import batch, fetch, keys_file, produce, records_of, topic_id_of

INVALID_RECORD, UNKNOWN_TOPIC_ID = 87, 100
SECRET = "patients-1"


def record_filters(listener, folder, before=(), behind=()):
    names = ", ".join(f'"{one}"' for one in (*before, "record_validation", "record_encryption", *behind))
    return [
        f"listeners.{listener}.filters=[{names}]",
        f'listeners.{listener}.record_validation.rules.r.topics=["patients-*"]',
        f"listeners.{listener}.record_validation.rules.r.value=json",
        f'listeners.{listener}.record_encryption.topics=["patients-*"]',
        f"listeners.{listener}.record_encryption.keys_file={keys_file(folder, 'k1', 'k1')}",
    ]


def holds(client, plain, topic_id, topic):
    """Fail if Produce by topic id is not validated, or not encrypted."""
    (partition,) = produce(client, "", batch((b"k", b"no json")), version=13, topic_id=topic_id)
    assert partition.error_code == INVALID_RECORD
    (partition,) = produce(client, "", batch((b"k", b'"secret"')), version=13, topic_id=topic_id)
    assert partition.error_code == 0
    stored = records_of(fetch(plain, topic))
    assert stored
    assert not any(b"secret" in one.value for one in stored)


def test_another_cluster_cannot_rename_this_clusters_topics(tmp_path):
    """The other cluster gives another name to the id of `patients-1`, before and after the broker has named it."""
    with FakeNode() as node:
        settings = [
            *record_filters("default", tmp_path),
            "listeners.plain.bind=127.0.0.1:0",
            "listeners.evil.bind=127.0.0.1:0",
            "listeners.evil.api_set=gateway",
            f'gateway.bootstrap=["{node.bootstrap}"]',
            f"gateway.node_ports={free_ports(1)}",
            "gateway.first_node_id=1",
            *record_filters("evil", tmp_path),
        ]
        import klamm_gateway

        server = EmbeddedServer(settings, plugins=[klamm_filters, klamm_gateway])
        with server, RawClient(server.address()) as client, RawClient(server.address("plain")) as plain:
            server.admin.create_topic(SECRET)
            topic_id = topic_id_of(plain, SECRET)
            node.topics = [MetadataResponseTopic(name="public", topic_id=topic_id)]
            with RawClient(server.address("evil")) as outside:
                assert [one.name for one in outside.call(MetadataRequest(None), 12).topics] == ["public"]
                holds(client, plain, topic_id, SECRET)
                assert topic_id_of(client, SECRET) == topic_id
                outside.call(MetadataRequest(None), 12)
            holds(client, plain, topic_id, SECRET)


def test_another_cluster_cannot_rename_this_clusters_topics_in_the_audit(tmp_path):
    """Both listeners write to the same spool."""
    import klamm_gateway

    topic_id = bytes(range(16))
    with FakeNode() as node:
        settings = [
            "listeners.default.api_set=unnamed",
            "listeners.evil.bind=127.0.0.1:0",
            "listeners.evil.api_set=gateway",
            f'gateway.bootstrap=["{node.bootstrap}"]',
            f"gateway.node_ports={free_ports(1)}",
            "gateway.first_node_id=1",
        ]
        for name in ("default", "evil"):
            settings += [f'listeners.{name}.observers=["audit"]', f"listeners.{name}.audit.spool={tmp_path / 'spool'}"]
            settings.append(f"listeners.{name}.audit.node=node-1")
        with (
            EmbeddedServer(settings, plugins=[Plugin(), klamm_gateway]) as server,
            RawClient(server.address()) as client,
        ):
            server.api_set("unnamed").topics = [(SECRET, topic_id)]
            topics_of_node(node, [("public", topic_id)])
            with RawClient(server.address("evil")) as other:
                for asked in (client, other):
                    asked.call(MetadataRequest(None), 12)
            produce(client, "", batch((b"k", b"v")), version=13, topic_id=topic_id)
    produced = [event for event in events_of(tmp_path / "spool") if event.get("api_key") == 0]
    assert [one["name"] for event in produced for one in event["resources"]] == [SECRET]


def test_filters_of_all_listeners_get_the_brokers_names(tmp_path):
    """No response on this listener has named the id, but the broker knows it."""
    with served("broker", [*record_filters("default", tmp_path), "listeners.plain.bind=127.0.0.1:0"]) as (broker, _):
        broker.admin.create_topic(SECRET)
        with RawClient(broker.address()) as client, RawClient(broker.address("plain")) as plain:
            holds(client, plain, topic_id_of(plain, SECRET), SECRET)


@pytest.mark.parametrize("tenancy", ["before", "behind"])
def test_names_of_topic_ids_depend_on_the_filters_place(tenancy, tmp_path):
    """Before `topic_prefix` a filter sees the tenant's names and ids. After it a filter sees the broker's."""
    prefix, topic = ("patients-", "1") if tenancy == "before" else ("a.", SECRET)
    settings = [
        *record_filters("default", tmp_path, **{tenancy: ("topic_prefix",)}),
        f"listeners.default.topic_prefix.prefix={prefix}",
        "listeners.plain.bind=127.0.0.1:0",
    ]
    with served("broker", settings) as (broker, _):
        broker.admin.create_topic(topic)
        with RawClient(broker.address()) as client, RawClient(broker.address("plain")) as plain:
            holds(client, plain, topic_id_of(client, topic), prefix + topic)
            own = topic_id_of(plain, prefix + topic)
            (partition,) = produce(client, "", batch((b"k", b"1")), version=13, topic_id=own)
            assert partition.error_code == UNKNOWN_TOPIC_ID


# ---- topic ids that change their names


class Unnamed(ApiSet):
    """A handler set that returns no names for topic ids. `topics` is its answer to Metadata."""

    topics = ()
    written = 0

    @handles(metadata_module, versions=range(0, 14))
    def metadata(self, request, context):
        return MetadataResponse(
            topics=[MetadataResponseTopic(name=name, topic_id=topic) for name, topic in self.topics]
        )

    @handles(produce_module, versions=range(3, 14))
    def produce(self, request, context):
        self.written += 1
        return ProduceResponse(
            [TopicProduceResponse(one.name, one.topic_id, [PartitionProduceResponse(0)]) for one in request.topic_data]
        )


class Plugin:
    @hookimpl
    def klamm_api_sets(self):
        yield Provider("unnamed", f"{__name__}:Unnamed", summary="says no names")


def topics_of_node(node, topics):
    node.topics = [MetadataResponseTopic(name=name, topic_id=topic_id) for name, topic_id in topics]


@contextlib.contextmanager
def strange(kind, settings):
    """Yield a server over a handler set or node of an unknown kind, and a function that sets its answer to Metadata."""
    if kind == "unnamed":
        settings = ["listeners.default.api_set=unnamed", *settings]
        with EmbeddedServer(settings, plugins=[klamm_filters, Plugin()]) as server:
            yield server, lambda topics: setattr(server.api_set(), "topics", topics)
    else:
        with FakeNode() as node, gateway(node.bootstrap, settings, plugins=[klamm_filters]) as server:
            yield server, lambda topics: topics_of_node(node, topics)


@pytest.mark.parametrize("kind", ["unnamed", "gateway"])
def test_many_ids_that_change_their_names_cause_few_lines_in_the_log(kind, tmp_path, caplog):
    """A hostile cluster may send any number of such ids, with any names, in one response."""
    with strange(kind, record_filters("default", tmp_path)) as (server, answer), RawClient(server.address()) as client:
        for name in ("n" * 20_000, "m" * 20_000):
            answer([(f"{name}{number}", bytes([*range(15), number])) for number in range(20)])
            client.call(MetadataRequest(None), 12)
    lines = [one.getMessage() for one in caplog.records if "now has the name" in one.getMessage()]
    # Both filters log at most this many lines, or the gateway does.
    assert 0 < len(lines) <= (10 if kind == "unnamed" else 5)
    assert max(map(len, lines)) < 1_000


@pytest.mark.parametrize("kind", ["unnamed", "gateway"])
def test_an_id_that_changes_its_name_is_refused_and_logged(kind, tmp_path, caplog):
    topic_id = bytes(range(16))
    with strange(kind, record_filters("default", tmp_path)) as (server, answer), RawClient(server.address()) as client:
        for number, name in enumerate((SECRET, SECRET, "public", "other", SECRET)):
            answer([(name, topic_id)])
            client.call(MetadataRequest(None), 12)
            if number < 2:
                (partition,) = produce(client, "", batch((b"k", b"no json")), version=13, topic_id=topic_id)
                assert partition.error_code == INVALID_RECORD
                continue
            (partition,) = produce(client, "", batch((b"k", b"1")), version=13, topic_id=topic_id)
            assert partition.error_code == UNKNOWN_TOPIC_ID, name
    lines = [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]
    # Without names from the handler set, both filters log the change once. A gateway logs it once for both.
    assert len(lines) == (2 if kind == "unnamed" else 1)
    assert all(topic_id.hex() in one and SECRET in one and "public" in one for one in lines)
