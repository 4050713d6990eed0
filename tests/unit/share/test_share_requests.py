"""Tests of requests of share groups that are refused, and of those that create a group."""

from __future__ import annotations

from typing import Any

import pytest

from klamm import ErrorCode
from klamm.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from klamm.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from klamm.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from klamm.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from klamm.wire.messages.share_group_describe import ShareGroupDescribeRequest
from tests.unit.share.test_share_fetch import Shares


def test_a_group_is_created_at_offsets_of_a_topic_that_exists(shares: Shares) -> None:
    def altered(group: str, *topics: str) -> Any:
        partitions = [AlterShareGroupOffsetsRequestPartition(7, 0)]
        wanted = [AlterShareGroupOffsetsRequestTopic(topic, partitions) for topic in topics]
        answer = shares.ask(AlterShareGroupOffsetsRequest(group, wanted), 0)
        codes = [each.error_code for topic in answer.responses for each in topic.partitions]
        (found,) = shares.ask(ShareGroupDescribeRequest([group])).groups
        return answer.error_code, codes, found.error_code, (found.group_epoch, found.assignment_epoch)

    missing = ErrorCode.GROUP_ID_NOT_FOUND, (0, 0)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert altered("none") == (0, [], *missing)
    assert altered("unknown", "nope") == (0, [unknown], *missing)
    assert altered("new", "nope", "t") == (0, [unknown, unknown], 0, (1, 1))


@pytest.mark.parametrize("member", ["", "x" * 37])
def test_a_member_id_has_at_most_36_characters(shares: Shares, member: str) -> None:
    assert shares.join(member).error_code == ErrorCode.INVALID_REQUEST
    assert shares.fetch(member, 0).error_code == ErrorCode.INVALID_REQUEST
    assert shares.acknowledge(member, 1).error_code == ErrorCode.INVALID_REQUEST
    longest = "x" * 36
    assert shares.join(longest).error_code == shares.fetch(longest, 0).error_code == 0
    assert shares.acknowledge(longest, 1).error_code == 0


def test_a_share_group_has_no_committed_offsets(shares: Shares) -> None:
    wanted = OffsetFetchRequestTopics("t", partition_indexes=[0])
    groups = [OffsetFetchRequestGroup("g", topics=[wanted]), OffsetFetchRequestGroup("g", "a", 1, [wanted])]
    for group in shares.ask(OffsetFetchRequest(groups=groups), 9).groups:
        (found,) = group.topics[0].partitions
        assert (group.error_code, found.error_code, found.committed_offset) == (0, 0, -1)


def test_a_share_group_refuses_classic_members(shares: Shares) -> None:
    for member in ("", "a"):
        protocols = [JoinGroupRequestProtocol("range", b"")]
        request = JoinGroupRequest("g", 30_000, 10_000, member, None, "consumer", protocols)
        refused = shares.ask(request, 9)
        assert (refused.error_code, refused.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")


@pytest.mark.parametrize("request_of", [AlterShareGroupOffsetsRequest, DeleteShareGroupOffsetsRequest])
def test_requests_about_offsets_require_a_group_id(shares: Shares, request_of: Any) -> None:
    assert shares.ask(request_of("", []), 0).error_code == ErrorCode.INVALID_GROUP_ID


def test_a_full_group_accepts_no_further_member(shares: Shares) -> None:
    shares.harness.reopen(group_share_max_size=1)
    assert shares.join("a").error_code == 0
    # As in Kafka, this includes a heartbeat of an unknown member.
    assert [shares.join("b", epoch).error_code for epoch in (0, 5)] == [ErrorCode.GROUP_MAX_SIZE_REACHED] * 2
    assert shares.join("b", -1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
