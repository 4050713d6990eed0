"""Handlers that run on the network thread: their work grows with the request, not faster."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.api.pending import NotInlineError
from klamm.wire.messages import create_topics, delete_groups, describe_configs
from klamm.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, DescribedGroup
from klamm_broker.handlers.group_descriptions import describe_each
from klamm_broker.handlers.k19_create_topics import create_named_topics
from klamm_broker.handlers.k32_describe_configs import configs_of_resources
from klamm_broker.handlers.k42_delete_groups import delete
from tests.unit.broker.broker_harness import BrokerHarness, Reply
from tests.waiting import wait_until


class CountedName(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        return str.__eq__(self, other)


def test_deleting_many_groups_costs_no_more_than_their_number(harness: BrokerHarness) -> None:
    count = 2000
    names = [CountedName(f"group-{number}") for number in range(count)]
    request = delete_groups.DeleteGroupsRequest([*names, *(CountedName(name) for name in names)])
    reply = Reply(delete_groups, request, 2)
    CountedName.compared = 0
    reply.settle(delete(harness.broker.services_of(0), request, harness.context(reply, delete_groups.API_KEY, 2)))
    wait_until(lambda: not reply.pending)
    assert len(reply.response.results) == count
    assert CountedName.compared < 10 * count


class DeniesGroups:
    """The context of a request whose client may describe every second group."""

    def authorize(self, _operation: Any, _kind: Any, name: str, **_options: Any) -> bool:
        return name.endswith(("0", "2", "4", "6", "8"))

    def check_answer_bytes(self, _size: int) -> None:
        """No limit."""


def test_describing_many_denied_groups_costs_no_more_than_their_number() -> None:
    count = 2000
    names: list[str] = [CountedName(f"group-{number}") for number in range(count)]
    request = ConsumerGroupDescribeRequest(names)
    context: Any = DeniesGroups()
    CountedName.compared = 0
    described = describe_each(
        request,
        context,
        describe=lambda group_id: DescribedGroup(group_id=group_id),
        failed=lambda code, message, group_id: DescribedGroup(code, message, group_id),
        bytes_of=lambda _group: 0,
    )
    assert CountedName.compared < 4 * count
    assert [group.error_code for group in described] == [30] * (count // 2) + [0] * (count // 2)


class SmallReply(Reply):
    """Of a request that has no turn of its own."""

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
def test_the_configs_of_many_topics_wait_for_a_turn(
    harness: BrokerHarness, handle: Any, module: Any, request_of: Any
) -> None:
    """Eight handlers that make such answers at once keep the network thread from the interpreter."""
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
    """A config with its synonyms and documentation takes several microseconds; eight clients ask at once."""
    harness.create_topic("t")
    request = describe_configs.DescribeConfigsRequest([describe_configs.DescribeConfigsResource(TOPIC, "t")] * 3)
    context = harness.context(
        SmallReply(describe_configs, request, 4), describe_configs.DescribeConfigsRequest.API_KEY, 4
    )
    with pytest.raises(NotInlineError):
        configs_of_resources(harness.broker.services_of(0), request, context)
