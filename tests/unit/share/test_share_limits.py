"""The number of share partitions has a total limit, and a share for each principal."""

from __future__ import annotations

from typing import Any

import pytest

from klamm import ErrorCode, KafkaPrincipal
from klamm.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from klamm.wire.messages.delete_groups import DeleteGroupsRequest
from klamm.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from klamm.wire.messages.share_fetch import FetchPartition, FetchTopic
from klamm_broker.limits.ledger import Ledger
from klamm_broker.limits.tables import SHARE_PARTITIONS
from klamm_broker.share.account import FREE_RUNS, PARTITION_BYTES, RUN_BYTES
from tests.unit.share.test_share_fetch import ACCEPT, Shares

FULL = int(ErrorCode.GROUP_MAX_SIZE_REACHED)
GROUPS = 12


def ledger_of(shares: Shares) -> Ledger:
    return shares.harness.broker.limits[SHARE_PARTITIONS]


def read_by_groups(shares: Shares, groups: int) -> list[int]:
    """Let this number of new groups read both partitions, each in a session that ends at once.

    Return the partitions' errors.
    """
    codes: list[int] = []
    topics = [FetchTopic(shares.topic_id, [FetchPartition(0), FetchPartition(1)])]
    for number in range(groups):
        shares.group = f"invented-{number}"
        assert shares.join("m", group=shares.group).error_code == 0
        answer = shares.fetch("m", 0, topics=topics)
        assert answer.error_code == 0
        codes += (each.error_code for topic in answer.responses for each in topic.partitions)
        shares.fetch("m", -1, topics=[])
        shares.join("m", -1, group=shares.group)
    return codes


def altered(shares: Shares, group: str) -> Any:
    partitions = [AlterShareGroupOffsetsRequestPartition(index, 0) for index in range(2)]
    return shares.ask(AlterShareGroupOffsetsRequest(group, [AlterShareGroupOffsetsRequestTopic("t", partitions)]), 0)


def errors(answer: Any) -> list[int]:
    """Return the errors of the partitions. There must be no error of the whole request."""
    assert answer.error_code == 0
    return [each.error_code for topic in answer.responses for each in topic.partitions]


@pytest.fixture
def limited(shares: Shares) -> Shares:
    """Yield a broker with room for about 20 partitions, of which one owner may have half."""
    shares.harness.reopen(share_partitions_max_bytes=20 * (PARTITION_BYTES + 20))
    return shares


def test_partitions_of_invented_groups_stay_within_the_share(limited: Shares) -> None:
    codes = read_by_groups(limited, GROUPS)
    ledger = ledger_of(limited)

    assert set(codes) == {0, FULL}
    assert codes.count(0) < 10
    assert ledger.used_by("127.0.0.1") == ledger.used <= ledger.share
    assert errors(altered(limited, "another")) == [FULL, FULL]
    limited.harness.principal = KafkaPrincipal("alice")
    limited.group = "honest"
    assert limited.join("m", group="honest").error_code == 0
    (topic,) = limited.fetch("m", 0).responses
    assert [each.error_code for each in topic.partitions] == [0]
    assert errors(altered(limited, "honest-too")) == [0, 0]


def test_offsets_are_altered_for_as_many_partitions_as_have_room(shares: Shares) -> None:
    """The other partitions get their own error. The group's existing partitions continue."""
    shares.harness.reopen(share_partitions_max_bytes=2 * PARTITION_BYTES, state_max_share_per_principal=1.0)

    assert errors(altered(shares, "new")) == [0, FULL]
    assert errors(altered(shares, "new")) == [0, FULL]
    asked = DescribeShareGroupOffsetsRequestGroup("new", [DescribeShareGroupOffsetsRequestTopic("t", [0, 1])])
    (group,) = shares.ask(DescribeShareGroupOffsetsRequest([asked]), 0).groups
    assert [each.start_offset for each in group.topics[0].partitions] == [0, -1]


def test_partitions_count_after_a_restart_until_their_group_is_deleted(limited: Shares) -> None:
    read_by_groups(limited, GROUPS)
    used = ledger_of(limited).used
    limited.harness.reopen(share_partitions_max_bytes=PARTITION_BYTES)
    assert ledger_of(limited).used_by("127.0.0.1") == ledger_of(limited).used == used > PARTITION_BYTES

    answer = limited.ask(DeleteGroupsRequest([f"invented-{number}" for number in range(GROUPS)]), 2)

    assert {each.error_code for each in answer.results} == {0}
    assert ledger_of(limited).used == 0


def test_runs_in_flight_count_and_acknowledging_them_makes_room(shares: Shares) -> None:
    room = PARTITION_BYTES + 1 + 8 * RUN_BYTES
    shares.harness.reopen(share_partitions_max_bytes=room, state_max_share_per_principal=1.0)
    shares.join("a")
    shares.produce(*(b"%d" % number for number in range(20)))
    shares.produce(b"20")
    shares.produce(b"21")
    assert shares.acquired("a", 0, max_records=1) == [(0, 19, 1)]

    # Every other record is acknowledged, so the others become as many runs.
    held = [(number, number, [ACCEPT]) for number in range(1, 20, 2)]
    assert shares.acquired("a", 1, *held) == []
    assert ledger_of(shares).used == PARTITION_BYTES + 1 + RUN_BYTES * (20 - FREE_RUNS) > room
    assert shares.acquired("a", 2) == []
    rest = [(number, number, [ACCEPT]) for number in range(0, 20, 2)]
    shares.acquired("a", 3, *rest)
    assert ledger_of(shares).used == PARTITION_BYTES + 1
    assert shares.acquired("a", 4) in ([(20, 20, 1)], [(20, 21, 1)], [(20, 20, 1), (21, 21, 1)])
