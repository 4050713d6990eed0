"""Handlers that run on the network thread: their work grows with the request, not faster."""

from __future__ import annotations

from klamm.wire.messages import delete_groups
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
