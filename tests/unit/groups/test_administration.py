"""Tests of describing, listing and deleting groups."""

from __future__ import annotations

from collections.abc import Mapping

from groups_playbook import GROUP, INITIAL_DELAY_MS, Call, Playbook, subscription

from klamm import ErrorCode
from klamm_broker.groups.offsets import PartitionCommit


def test_a_stable_group_is_described_with_metadata_and_assignments(play: Playbook) -> None:
    ids = play.stable_group(2)
    described = play.coordinator.administration.describe(GROUP)
    assert described is not None
    assert (described.state, described.protocol_type, described.protocol_name) == ("Stable", "consumer", "range")
    assert [(member.member_id, member.metadata, member.assignment) for member in described.members] == [
        (ids[0], subscription("t"), b"0"),
        (ids[1], subscription("t"), b"1"),
    ]
    assert {(member.client_id, member.client_host) for member in described.members} == {("client", "/127.0.0.1")}


def test_a_rebalancing_group_is_described_without_metadata(play: Playbook) -> None:
    play.ask_join(play.promised_id())
    described = play.coordinator.administration.describe(GROUP)
    assert described is not None
    assert (described.state, described.protocol_name) == ("PreparingRebalance", "")
    assert [member.metadata for member in described.members] == [b""]
    play.advance(INITIAL_DELAY_MS)
    assert play.state() == "CompletingRebalance"


def test_an_unknown_group_has_no_description(play: Playbook) -> None:
    assert play.coordinator.administration.describe("none") is None


def test_lists_are_filtered_by_state_and_type(play: Playbook) -> None:
    play.stable_group(1)
    play.commit(PartitionCommit("t", 0, 1), group_id="simple")

    def listed(**filters: list[str]) -> list[tuple[str, str, str]]:
        groups = play.coordinator.administration.list_groups(**filters)
        return sorted((group.group_id, group.state, group.protocol_type) for group in groups)

    stable, simple = (GROUP, "Stable", "consumer"), ("simple", "Empty", "")
    assert listed() == [stable, simple]
    assert listed(states=[" stable "]) == [stable]
    assert listed(states=["Empty", "Dead"]) == [simple]
    assert listed(types=["Classic"]) == [stable, simple]
    assert listed(types=["consumer"]) == []
    assert {group.group_type for group in play.coordinator.administration.list_groups()} == {"classic"}


def delete(play: Playbook, *group_ids: str) -> Mapping[str, ErrorCode]:
    call: Call[Mapping[str, ErrorCode]] = Call()
    play.coordinator.administration.delete_groups(group_ids, call)
    play.settle()
    return call.result


def test_only_empty_groups_are_deleted(play: Playbook) -> None:
    (member_id,) = play.stable_group(1)
    play.commit(PartitionCommit("t", 0, 1), group_id="simple")
    assert delete(play, GROUP, "simple", "none") == {
        GROUP: ErrorCode.NON_EMPTY_GROUP,
        "simple": ErrorCode.NONE,
        "none": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert play.state("simple") is None
    assert play.fetch(group_id="simple") == {}

    play.leave(member_id)
    assert delete(play, GROUP) == {GROUP: ErrorCode.NONE}
    play.restart()
    assert play.loaded == 0


def test_a_deletion_that_cannot_be_written_deletes_nothing(play: Playbook) -> None:
    play.commit(PartitionCommit("t", 0, 1))
    play.store.read("ALTER TABLE offsets RENAME TO away")
    assert delete(play, GROUP) == {GROUP: ErrorCode.NOT_COORDINATOR}
    play.store.read("ALTER TABLE away RENAME TO offsets")
    assert play.state() == "Empty"
    assert play.fetch() != {}


def test_a_member_that_joins_while_its_group_is_deleted_stays(play: Playbook) -> None:
    play.commit(PartitionCommit("t", 0, 1))
    call: Call[Mapping[str, ErrorCode]] = Call()
    play.coordinator.administration.delete_groups([GROUP], call)
    member_id = play.promised_id()
    join = play.ask_join(member_id)
    play.advance(INITIAL_DELAY_MS)

    assert call.result == {GROUP: ErrorCode.NONE}
    play.sync_all([member_id], [join])
    assert play.fetch() == {}
    play.crash()
    assert play.heartbeat(member_id, 1) is ErrorCode.NONE


def test_member_ids_that_were_promised_end_with_their_group(play: Playbook) -> None:
    member_id = play.promised_id()
    assert delete(play, GROUP) == {GROUP: ErrorCode.NONE}
    assert play.state(GROUP) is None
    join = play.ask_join(member_id)
    play.settle()
    assert join.result.error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_after_a_deletion_creates_the_group_again(play: Playbook) -> None:
    play.commit(PartitionCommit("t", 0, 1))
    call: Call[Mapping[str, ErrorCode]] = Call()
    play.coordinator.administration.delete_groups([GROUP], call)
    assert play.commit(PartitionCommit("t", 1, 2)) == [ErrorCode.NONE]
    assert call.result == {GROUP: ErrorCode.NONE}
    assert list(play.fetch()["t"]) == [1]
    play.crash()
    assert list(play.fetch()["t"]) == [1]
