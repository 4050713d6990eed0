"""Audit events of requests that pass through filters are the same as without filters, or name the filter that refused.

The tests run with each registered filter, alone and stacked, before a broker and before a gateway. Events have the
names that the broker knows: with a prefix, if `topic_prefix` adds one.
"""

import contextlib

import pytest

from klamm.testing import RawClient
from klamm.wire.api_keys import ApiKey
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from klamm.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.heartbeat import HeartbeatRequest
from klamm.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.response_errors import first_error
from tests.audit_spool import assert_numbered, events_of
from tests.contract.filter_settings import STRICT, alone_and_stacked, registered, settings_of
from tests.contract.filtered import API_SETS, served
from tests.contract.test_record_filters import INVALID_RECORD, batch, fetch, produce, records_of, topic_id_of
from tests.contract.trail import CHANGES

BY_API = {change.api_key: change for change in CHANGES}
CHANGED = (
    ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_CONFIGS,
    ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_DELETE, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS,
    ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.DELETE_TOPICS, ApiKey.DELETE_GROUPS,
)  # fmt: skip
DRAWN = {"member_id", "topic_id", "producer_id"}
"""Attributes with another value in each run."""
NOT_HELD_AGAINST = {"Fetch": {"bytes", "records"}, "Produce": {"bytes"}}
"""Fields that are not compared.

Encryption makes records larger, and records that are sent from a file are not counted.
"""
PREFIX = "a."
on_both = pytest.mark.parametrize("api_set", API_SETS)


def topics(*names):
    return CreateTopicsRequest([CreatableTopic(name, 2, 1) for name in names])


def produced(*names):
    records = [PartitionProduceData(0, batch((b"k", b"v"), (b"k", b"w")))]
    return ProduceRequest(None, 1, 10_000, [TopicProduceData(name, partition_data=records) for name in names])


def fetched(*names):
    asked = [FetchPartition(0, -1, 0, -1, -1, 1 << 20)]
    wanted = [FetchTopic(name, partitions=asked) for name in names]
    return FetchRequest(None, -1, None, 100, 0, 1 << 20, 0, 0, -1, wanted)


def exchanges():
    """Yield requests with their versions. Most come in three forms: one succeeds, one fails, and one does both."""
    yield topics("one", "two"), 7
    yield topics("one", "three"), 5
    for names in (("one",), ("missing",), ("one", "missing")):
        yield produced(*names), 9
        yield fetched(*names), 11
        yield ListOffsetsRequest(-1, 0, [ListOffsetsTopic(one, [ListOffsetsPartition(0, -1, -1)]) for one in names]), 7
        yield MetadataRequest([MetadataRequestTopic(name=one) for one in names], False), 12
        yield DescribeConfigsRequest([DescribeConfigsResource(2, one, ["retention.ms"]) for one in names]), 4
    yield FindCoordinatorRequest("group", 0), 3
    yield HeartbeatRequest("group", 1, "member"), 4
    for name in ("x", "one", "x"):
        for change in map(BY_API.get, CHANGED):
            yield change.request(name, None), change.version


def without_prefix(name, names):
    return name.removeprefix(PREFIX) if "topic_prefix" in names else name


def resources_of(event, names):
    """Return the resources of an event as they would be without filters."""
    found = []
    for one in event.get("resources", ()):
        kept = {key: value for key, value in one.items() if key not in NOT_HELD_AGAINST.get(event["api_name"], ())}
        kept["name"] = without_prefix(kept["name"], names)
        kept["attributes"] = [each for each in kept.get("attributes", ()) if each["name"] not in DRAWN]
        found.append(kept)
    return found


def run(api_set, names, folder):
    """Send the exchanges. Return their events in order, and the error code that the client got for each."""
    folder.mkdir()
    own = {"audit": ("on_full=refuse",)}
    settings = settings_of(names, folder, own=own, observers=() if "audit" in names else ("audit",))
    audit = (f"spool={folder / 'spool'}", "node=node-1", "sync_intents=none", "aggregate_above_per_second=-1")
    settings += [f"listeners.default.audit.{one}" for one in audit]
    codes = []
    with served(api_set, settings) as (_broker, front):
        for number, (request, version) in enumerate(exchanges()):
            with RawClient(front.address(), client_id=f"client-{number:04}", timeout_s=20) as client:
                codes.append(first_error(client.call(request, version)))
    events = events_of(folder / "spool")
    assert_numbered(events)
    assert [one for one in events if one["kind"] == "audit_gap"] == []
    asked = [one for one in events if one["kind"] == "request" and one["client_id"].startswith("client-")]
    asked.sort(key=lambda event: event["client_id"])
    assert [one["client_id"] for one in asked] == [f"client-{number:04}" for number in range(len(codes))], "once each"
    return asked, codes


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Return `plain(api_set)`, which returns the result of `run` without filters."""
    found = {}

    def of(api_set):
        if api_set not in found:
            found[api_set] = run(api_set, (), tmp_path_factory.mktemp("plain") / api_set)
        return found[api_set]

    return of


@on_both
@pytest.mark.parametrize("names", alone_and_stacked(), ids="-".join)
def test_events_are_the_same_with_and_without_filters(plain, api_set, names, tmp_path):
    expected, _codes = plain(api_set)
    events, codes = run(api_set, names, tmp_path / "filtered")
    refused = set()
    for wanted, event, code in zip(expected, events, codes, strict=True):
        assert event["api_name"] == wanted["api_name"]
        assert event["error_code"] == code, event
        found, without = resources_of(event, names), resources_of(wanted, ())
        if event["outcome"] == "refused":
            refused.add(event["api_name"])
            assert code != 0
            assert "intent_id" not in event
            assert "upstream_node_id" not in event
            assert [one["name"] for one in found] == [one["name"] for one in without]
            continue
        assert (event["outcome"], event["error_code"]) == (wanted["outcome"], wanted["error_code"]), (event, wanted)
        assert found == without, event["api_name"]
        assert ("intent_id" in event, "upstream_node_id" in event) == (
            "intent_id" in wanted,
            "upstream_node_id" in wanted,
        )
        if "topic_prefix" in names:
            kinds = ("TOPIC", "GROUP")
            named = [one["name"] for one in event.get("resources", ()) if one["type"] in kinds]
            assert all(name.startswith(PREFIX) for name in named), event
    of_filters = {"deny_apis": {"CreateAcls"}, "topic_prefix": {"AlterClientQuotas", "AlterUserScramCredentials"}}
    assert refused == set().union(*(of_filters.get(name, ()) for name in names))


@pytest.fixture
def trailed(tmp_path):
    """Return the context manager `trailed(api_set, names)`.

    It yields a client of a listener with these filters and the audit.
    """

    @contextlib.contextmanager
    def serve(api_set, names):
        audit = (f"spool={tmp_path / 'spool'}", "node=node-1", "sync_intents=none")
        settings = settings_of(names, tmp_path, observers=() if "audit" in names else ("audit",))
        settings += [f"listeners.default.audit.{one}" for one in audit]
        with (
            served(api_set, settings) as (_broker, front),
            RawClient(front.address(), client_id="client", timeout_s=20) as client,
        ):
            yield client

    return serve


def errors_of(folder, *apis):
    """Return for each event the error of each resource."""
    events = [one for one in events_of(folder / "spool") if one.get("api_name") in apis]
    return [{one["name"]: one.get("error_code", 0) for one in event["resources"]} for event in events]


@on_both
@pytest.mark.parametrize(
    ("names", "prefix"),
    [
        (("record_validation",), ""),
        (("topic_prefix", "record_validation"), PREFIX),
        (registered()[::-1], PREFIX),
    ],
    ids=["alone", "behind a prefix", "behind all"],
)
def test_a_topic_that_a_filter_removes_from_a_request_is_in_the_trail(trailed, api_set, names, prefix, tmp_path):
    """The event names the refused topic with its error, also if the request has no other topic."""
    with trailed(api_set, names) as client:
        assert [one.error_code for one in client.call(topics(STRICT, "free"), 7).topics] == [0, 0]
        for wanted in ((STRICT, "free"), (STRICT,)):
            answered = client.call(produced(*wanted), 9).responses
            codes = {one.name: one.partition_responses[0].error_code for one in answered}
            assert codes == {name: INVALID_RECORD if name == STRICT else 0 for name in wanted}
    strict, free = f"{prefix}{STRICT}", f"{prefix}free"
    assert errors_of(tmp_path, "Produce") == [{strict: INVALID_RECORD, free: 0}, {strict: INVALID_RECORD}]


@on_both
@pytest.mark.parametrize("names", [(), ("topic_prefix",), *alone_and_stacked()[-2:]], ids=lambda names: "-".join(names))
def test_events_name_topics_that_requests_name_by_id(trailed, api_set, names, tmp_path):
    with trailed(api_set, names) as client:
        client.call(topics("t"), 7)
        topic_id = topic_id_of(client, "t")
        assert produce(client, "", batch((b"k", b"v")), version=13, topic_id=topic_id)[0].error_code == 0
        assert len(records_of(fetch(client, "", version=13, topic_id=topic_id))) == 1
    name = f"{PREFIX}t" if "topic_prefix" in names else "t"
    assert errors_of(tmp_path, "Produce", "Fetch") == [{name: 0}, {name: 0}]
