"""The work of handlers on the network thread grows at most linearly with the request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from klamm import ErrorCode
from klamm.api.pending import NotInlineError
from klamm.sasl import ScramCredential, ScramMechanism
from klamm.wire.messages import (
    alter_client_quotas,
    create_topics,
    delete_groups,
    delete_topics,
    describe_client_quotas,
    describe_configs,
    describe_user_scram_credentials,
    elect_leaders,
    fetch,
    list_config_resources,
    list_transactions,
)
from klamm.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, DescribedGroup
from klamm_broker.handlers.epoch_groups import describe_each
from klamm_broker.handlers.k01_fetch import fetch_records
from klamm_broker.handlers.k19_create_topics import create_named_topics
from klamm_broker.handlers.k32_describe_configs import configs_of_resources
from klamm_broker.handlers.k42_delete_groups import delete
from klamm_broker.handlers.k43_elect_leaders import elect
from klamm_broker.handlers.k48_describe_client_quotas import matching_quotas
from klamm_broker.handlers.k50_describe_user_scram_credentials import scram_users
from klamm_broker.handlers.k66_list_transactions import list_matching
from klamm_broker.handlers.k74_list_config_resources import config_resources
from klamm_broker.storage.store import StoreError
from klamm_broker.topics.placement import NewTopic
from tests.unit.broker.broker_harness import BrokerHarness, Reply, fetch_request
from tests.unit.hashed_name import HashedName
from tests.waiting import wait_until


class CountedName(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        return str.__eq__(self, other)


def test_the_cost_of_deleting_groups_grows_linearly(harness: BrokerHarness) -> None:
    count = 2000
    names = [CountedName(f"group-{number}") for number in range(count)]
    request = delete_groups.DeleteGroupsRequest([*names, *(CountedName(name) for name in names)])
    reply = Reply(delete_groups, request, 2)
    CountedName.compared = 0
    reply.settle(delete(harness.broker.services_of(0), request, harness.context(reply, delete_groups.API_KEY, 2)))
    wait_until(lambda: not reply.pending)
    assert len(reply.response.results) == count
    assert CountedName.compared < 10 * count


def test_the_cost_of_deleting_topics_grows_linearly(harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 600
    writes, looks = [], []
    harness.broker.topics.create_all({HashedName(f"topic-{number}"): NewTopic(1, {}) for number in range(count)})
    store, offsets = harness.broker.store, harness.broker.groups.offsets
    original = store.write_and_wait
    monkeypatch.setattr(store, "write_and_wait", lambda rows: (writes.append(rows), original(rows)))
    monkeypatch.setattr(offsets, "topics_deleted", looks.append)
    HashedName.hashed = 0
    request = delete_topics.DeleteTopicsRequest(
        topic_names=[f"topic-{number}" for number in range(count)], timeout_ms=1000
    )
    results = harness.call(request, 5).responses
    assert [result.error_code for result in results] == [0] * count
    assert harness.broker.topics.all() == []
    assert HashedName.hashed < 30 * count
    assert len(writes) == len(looks) == 3, "250 topics at a time"


def test_a_deletion_that_cannot_be_written_is_answered_for_each_topic(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("t", "u"):
        harness.create_topic(name)

    def refuse(_rows: Any) -> None:
        raise StoreError("on purpose")

    monkeypatch.setattr(harness.broker.store, "write_and_wait", refuse)
    results = harness.call(
        delete_topics.DeleteTopicsRequest(topic_names=["t", "nope", "u"], timeout_ms=1000), 5
    ).responses
    errors = {result.name: result.error_code for result in results}
    storage, unknown = ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors == {"t": storage, "nope": unknown, "u": storage}
    assert [topic.name for topic in harness.broker.topics.all()] == ["t", "u"]


class DeniesGroups:
    """The context of a request whose client may describe every second group."""

    def authorize(self, _operation: Any, _kind: Any, name: str, **_options: Any) -> bool:
        return name.endswith(("0", "2", "4", "6", "8"))

    def check_answer_bytes(self, _size: int) -> None:
        """Check nothing, because the answer has no limit here."""


def test_the_cost_of_describing_denied_groups_grows_linearly() -> None:
    count = 2000
    names: list[str] = [CountedName(f"group-{number}") for number in range(count)]
    request = ConsumerGroupDescribeRequest(names)
    context: Any = DeniesGroups()
    CountedName.compared = 0
    broker: Any = SimpleNamespace(cluster=SimpleNamespace(check_coordinates=lambda _group_id: None))
    described = describe_each(
        broker,
        request,
        context,
        describe=lambda group_id: DescribedGroup(group_id=group_id),
        failed=DescribedGroup,
        bytes_of=lambda _group: 0,
    )
    assert CountedName.compared < 4 * count
    assert [group.error_code for group in described] == [30] * (count // 2) + [0] * (count // 2)


class InlineReply(Reply):
    """The reply to a request on a network thread."""

    inline = True


def test_a_network_thread_reads_no_session_of_many_partitions(harness: BrokerHarness) -> None:
    """The request that continues the session is small."""
    harness.create_topic("t")

    def run(count: int) -> Reply:
        begin = fetch_request("t", *((index, 0) for index in range(count)), session_epoch=0)
        session_id = harness.call(begin, 12).session_id
        assert session_id
        request = fetch_request("t", session_id=session_id, session_epoch=1)
        reply = InlineReply(fetch, request, 12)
        reply.settle(fetch_records(harness.broker.services_of(0), request, harness.context(reply, fetch.API_KEY, 12)))
        return reply

    assert run(200).response.error_code == 0
    with pytest.raises(NotInlineError):
        run(300)


class SmallReply(Reply):
    """The reply to a request that has no turn of its own."""

    large = False


TOPIC = 2


@pytest.mark.parametrize(
    ("handle", "module", "request_of"),
    [
        (
            configs_of_resources,
            describe_configs,
            lambda count: describe_configs.DescribeConfigsRequest(
                [describe_configs.DescribeConfigsResource(TOPIC, "t")] * count
            ),
        ),
        (
            create_named_topics,
            create_topics,
            lambda count: create_topics.CreateTopicsRequest(
                [create_topics.CreatableTopic(f"n{number}", 1, 1) for number in range(count)], validate_only=True
            ),
        ),
    ],
    ids=["DescribeConfigs", "CreateTopics"],
)
def test_a_request_for_configs_of_many_topics_waits_for_a_turn(
    harness: BrokerHarness, handle: Any, module: Any, request_of: Any
) -> None:
    """Eight handlers that build such answers at once would keep the network thread from the interpreter."""
    harness.create_topic("t")

    def run(count: int, kind: type[Reply]) -> None:
        request = request_of(count)
        reply = kind(module, request, 4)
        reply.settle(handle(harness.broker.services_of(0), request, harness.context(reply, module.API_KEY, 4)))

    run(2, SmallReply)
    run(20, Reply)
    with pytest.raises(NotInlineError) as caught:
        run(20, SmallReply)
    assert caught.value.large


def test_a_network_thread_describes_two_topics_at_most(harness: BrokerHarness) -> None:
    """A config with synonyms and documentation takes several microseconds, and eight clients may ask at once."""
    harness.create_topic("t")
    request = describe_configs.DescribeConfigsRequest([describe_configs.DescribeConfigsResource(TOPIC, "t")] * 3)
    context = harness.context(
        SmallReply(describe_configs, request, 4), describe_configs.DescribeConfigsRequest.API_KEY, 4
    )
    with pytest.raises(NotInlineError):
        configs_of_resources(harness.broker.services_of(0), request, context)


def test_a_network_thread_does_not_match_ids_with_a_pattern(harness: BrokerHarness) -> None:
    """A match may take milliseconds, however short the pattern is."""
    request = list_transactions.ListTransactionsRequest(transactional_id_pattern="a*")
    context = harness.context(
        InlineReply(list_transactions, request, 2), list_transactions.ListTransactionsRequest.API_KEY, 2
    )
    with pytest.raises(NotInlineError):
        list_matching(harness.broker.services_of(0), request, context)


def quotas_of(count: int) -> alter_client_quotas.AlterClientQuotasRequest:
    return alter_client_quotas.AlterClientQuotasRequest(
        [
            alter_client_quotas.RequestEntryData(
                [alter_client_quotas.RequestEntityData("user", f"user-{number}")],
                [alter_client_quotas.OpData("producer_byte_rate", 1.0)],
            )
            for number in range(count)
        ]
    )


@pytest.mark.parametrize(
    ("handle", "module", "request_"),
    [
        (elect, elect_leaders, elect_leaders.ElectLeadersRequest(0, None)),
        (config_resources, list_config_resources, list_config_resources.ListConfigResourcesRequest([TOPIC])),
        (matching_quotas, describe_client_quotas, describe_client_quotas.DescribeClientQuotasRequest()),
        (
            scram_users,
            describe_user_scram_credentials,
            describe_user_scram_credentials.DescribeUserScramCredentialsRequest(),
        ),
    ],
    ids=["ElectLeaders", "ListConfigResources", "DescribeClientQuotas", "DescribeUserScramCredentials"],
)
def test_a_small_request_with_a_large_answer_waits_for_a_turn(
    harness: BrokerHarness, handle: Any, module: Any, request_: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("klamm.api.context._INLINE_MAX_ANSWER_ELEMENTS", 2)

    def run() -> None:
        version = 1 if module is list_config_resources else 0
        reply = SmallReply(module, request_, version)
        handle(harness.broker.services_of(0), request_, harness.context(reply, module.API_KEY, version))

    def make(count: int) -> None:
        for number in range(count):
            name = f"t{number}-of-{count}"
            harness.create_topic(name)
            credential = ScramCredential.from_password(ScramMechanism.SCRAM_SHA_256, "p", b"salt")
            key = ScramMechanism.SCRAM_SHA_256.row_key(name)
            harness.broker.scram_credentials.update({key: credential.to_row()})
        harness.call(quotas_of(count), 1)

    make(2)
    run()
    make(3)
    with pytest.raises(NotInlineError) as caught:
        run()
    assert caught.value.large
