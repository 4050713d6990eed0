"""Tests of groups that move from the classic protocol to the consumer protocol and back, with live members."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from consumers import Consumer, partitions, settle
from groups_playbook import GROUP, REBALANCE_MS, SESSION_MS, Playbook, subscription, topic_id

from klamm import ErrorCode
from klamm_broker.groups.assignors import Partitions
from klamm_broker.groups.consumer_protocol import assignment_bytes, read_assignment
from klamm_broker.groups.offsets import PartitionCommit
from klamm_broker.groups.requests import JoinResult, LeavingMember


@pytest.fixture
def play(make_playbook: Callable[..., Playbook]) -> Playbook:
    made = make_playbook()
    made.topics.set("t", 4)
    return made


def assigned(data: bytes) -> Partitions:
    found = read_assignment(data).assigned_partitions
    return partitions(**{each.topic: set(each.partitions) for each in found})


class Classic:
    """A member of the classic protocol. It rejoins when its heartbeat is answered with a rebalance."""

    def __init__(self, play: Playbook, instance_id: str | None = None, **joining: object) -> None:
        self.play = play
        self.instance_id = instance_id
        self.joining = joining
        self.member_id = ""
        self.generation = -1
        self.owned: Partitions = {}

    def join(self) -> JoinResult:
        """Join and sync."""
        changes = {"group_instance_id": self.instance_id, **self.joining}
        call = self.play.ask_join(self.member_id, **changes)
        self.play.settle()
        if call.result.error_code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = call.result.member_id
            call = self.play.ask_join(self.member_id, **changes)
            self.play.settle()
        joined = call.result
        if joined.error_code is ErrorCode.NONE:
            self.member_id, self.generation = joined.member_id, joined.generation_id
            sync = self.play.ask_sync(self.member_id, self.generation, group_instance_id=self.instance_id)
            self.play.settle()
            assert sync.result.error_code is ErrorCode.NONE
            self.owned = assigned(sync.result.assignment)
        return joined

    def heartbeat(self) -> ErrorCode:
        return self.play.heartbeat(self.member_id, self.generation, self.instance_id)

    def live(self) -> None:
        """Rejoin as long as answers require it."""
        for _ in range(5):
            if self.heartbeat() is ErrorCode.NONE:
                return
            assert self.join().error_code is ErrorCode.NONE
        raise AssertionError("each answer asks for another rejoin")


def live_classic_group(play: Playbook, count: int = 2) -> list[Classic]:
    """Return the members of a stable classic group. The server has not made their assignment."""
    ids = [play.promised_id() for _ in range(count)]
    joins = [play.ask_join(member_id) for member_id in ids]
    play.await_joins(joins)
    generation_id = joins[0].result.generation_id
    wanted = {each: assignment_bytes(0, [("t", range(n, 4, count))]) for n, each in enumerate(ids)}
    leader_id = joins[0].result.leader_id
    for member_id in sorted(ids, key=lambda each: each != leader_id, reverse=True):
        play.ask_sync(member_id, generation_id, wanted if member_id == leader_id else None)
    play.settle()
    members = []
    for member_id in ids:
        member = Classic(play)
        member.member_id, member.generation, member.owned = member_id, generation_id, assigned(wanted[member_id])
        members.append(member)
    return members


def group_type(play: Playbook) -> str:
    (listed,) = play.coordinator.administration.list_groups()
    return listed.group_type


def test_members_move_over_one_by_one_and_back(play: Playbook) -> None:
    first, second = live_classic_group(play)
    play.commit(PartitionCommit("t", 0, 7), member_id=first.member_id, generation_id=first.generation)
    modern = Consumer(play, "m")
    assert modern.beat().error_code is ErrorCode.NONE
    assert group_type(play) == "consumer"
    for _ in range(4):
        first.live()
        second.live()
        modern.beat()
    held = [*first.owned.values(), *second.owned.values(), *modern.owned.values()]
    assert sorted(len(each) for each in held) == [1, 1, 2]
    assert frozenset().union(*held) == {0, 1, 2, 3}
    assert play.state_of_group() == "Stable"
    offset = play.fetch({"t": [0]})["t"][0]
    assert offset is not None
    assert offset.offset == 7
    types = [member.classic is not None for member in play.coordinator.consumers.describe(GROUP).members]
    assert sorted(types) == [False, True, True]

    # The last member of the consumer protocol leaves. The others continue as a classic group.
    play.beat("m", -1)
    assert group_type(play) == "classic"
    assert play.state() == "PreparingRebalance"
    assert first.heartbeat() in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS)
    joins = [play.ask_join(each.member_id) for each in (first, second)]
    play.await_joins(joins)
    assert {join.result.error_code for join in joins} == {ErrorCode.NONE}
    assert joins[0].result.generation_id == joins[1].result.generation_id


def test_a_group_whose_modern_member_fails_is_classic_again(play: Playbook) -> None:
    (first,) = live_classic_group(play, 1)
    modern = Consumer(play, "m")
    modern.beat()
    for _ in range(10):
        first.live()
        play.advance(5_000)
    assert group_type(play) == "classic"


def test_a_classic_member_joins_a_consumer_group(play: Playbook) -> None:
    modern = Consumer(play, "m")
    modern.beat()
    classic = Classic(play)
    assert classic.join().error_code is ErrorCode.NONE
    settle(modern)
    classic.live()
    settle(modern)
    classic.live()
    assert len(classic.owned[next(iter(classic.owned))]) == modern.count() == 2
    left = play.leave(classic.member_id)
    assert left.members == [ErrorCode.NONE]
    settle(modern)
    assert modern.count() == 4


def test_a_static_member_changes_its_protocol_in_both_directions(play: Playbook) -> None:
    modern = Consumer(play, "m", instance_id="i")
    modern.beat()
    classic = Classic(play, "i")
    assert classic.join().error_code is ErrorCode.NONE
    # It was the only member of the consumer protocol.
    assert group_type(play) == "classic"
    assert classic.owned == partitions(t={0, 1, 2, 3})
    assert play.beat("m", 1, instance_id="i").error_code is ErrorCode.GROUP_ID_NOT_FOUND
    again = Consumer(play, "m2", instance_id="i")
    assert again.beat().error_code is ErrorCode.NONE
    assert again.owned == partitions(t={0, 1, 2, 3})
    assert group_type(play) == "consumer"


@pytest.mark.parametrize(
    ("policy", "expected"), [("disabled", "classic"), ("downgrade", "classic"), ("upgrade", "consumer")]
)
def test_the_policy_decides_on_upgrades(make_playbook: Callable[..., Playbook], policy: str, expected: str) -> None:
    play = make_playbook(group_consumer_migration_policy=policy)
    live_classic_group(play)
    result = play.beat("m", 0)
    refused = expected == "classic"
    assert result.error_code is (ErrorCode.GROUP_ID_NOT_FOUND if refused else ErrorCode.NONE)
    assert group_type(play) == expected


def test_the_policy_decides_on_downgrades(make_playbook: Callable[..., Playbook]) -> None:
    play = make_playbook(group_consumer_migration_policy="upgrade")
    live_classic_group(play)
    play.beat("m", 0)
    play.beat("m", -1)
    assert group_type(play) == "consumer"


def test_protocols_that_were_never_read_do_not_stop_a_downgrade(play: Playbook) -> None:
    modern = Consumer(play, "m")
    modern.beat()
    classic = Classic(play, protocols=(("range", subscription("t")), ("odd", b"")))
    assert classic.join().error_code is ErrorCode.NONE
    play.beat("m", -1)
    assert group_type(play) == "classic"


def test_groups_that_are_no_consumer_groups_do_not_migrate(play: Playbook) -> None:
    joins = [play.ask_join(play.promised_id(protocol_type="connect"), protocol_type="connect")]
    play.await_joins(joins)
    assert play.beat("m", 0).error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert play.beat("m", 1).error_code is ErrorCode.GROUP_ID_NOT_FOUND


def test_metadata_that_cannot_be_read_keeps_a_group_classic(play: Playbook) -> None:
    joins = [play.ask_join(play.promised_id(protocols=(("range", b"\0"),)), protocols=(("range", b"\0"),))]
    play.await_joins(joins)
    assert play.beat("m", 0).error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert group_type(play) == "classic"


def test_an_upgrade_in_the_middle_of_a_rebalance_asks_members_to_rejoin(play: Playbook) -> None:
    member_id = play.promised_id()
    waiting = play.ask_join(member_id)
    assert waiting.waits
    play.beat("m", 0)
    assert waiting.result.error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert group_type(play) == "consumer"


def test_empty_groups_accept_members_of_either_protocol(play: Playbook) -> None:
    play.commit(PartitionCommit("t", 0, 5))
    assert group_type(play) == "classic"
    play.beat("m", 0)
    play.beat("m", -1)
    assert group_type(play) == "consumer"
    assert play.ask_join("nobody").result.error_code is ErrorCode.UNKNOWN_MEMBER_ID
    live_classic_group(play, 1)
    assert group_type(play) == "classic"
    offset = play.fetch({"t": [0]})["t"][0]
    assert offset is not None
    assert offset.offset == 5


def test_an_administrator_removes_members_of_either_protocol(play: Playbook) -> None:
    modern, other, classic = Consumer(play, "m", instance_id="i"), Consumer(play, "n"), Classic(play)
    settle(modern, other)
    classic.join()
    left = play.leave(LeavingMember("", "i"), "n", "n", "nobody")
    assert left.members == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID]
    assert group_type(play) == "classic"


# Classic members of consumer groups


def test_invalid_requests_of_classic_members_are_refused(play: Playbook) -> None:
    Consumer(play, "m").beat()
    classic = Classic(play)
    classic.join()
    assert play.heartbeat("m", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert play.heartbeat("nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert play.heartbeat(classic.member_id, 77) is ErrorCode.ILLEGAL_GENERATION
    other_name = play.ask_sync(classic.member_id, classic.generation, protocol_name="other").result
    assert other_name.error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert play.leave(LeavingMember("", "nobody")).members == [ErrorCode.UNKNOWN_MEMBER_ID]
    refused = play.ask_join(classic.member_id, protocol_type="connect").result
    assert (refused.error_code, refused.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    other = Classic(play, protocols=(("sticky", subscription("t")),))
    assert other.join().error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    short = play.ask_join("x", session_timeout_ms=1).result
    assert short.error_code is ErrorCode.INVALID_SESSION_TIMEOUT


def test_a_classic_member_that_does_not_rejoin_is_fenced(play: Playbook) -> None:
    modern, classic = Consumer(play, "m"), Classic(play, rebalance_timeout_ms=2 * SESSION_MS)
    modern.beat()
    classic.join()
    other = Consumer(play, "n")
    other.beat()
    for _ in range(4):
        assert classic.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        modern.beat()
        other.beat()
        play.advance(5_000)
    assert classic.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_that_does_not_sync_is_fenced(play: Playbook) -> None:
    modern = Consumer(play, "m")
    modern.beat()
    member_id = play.promised_id()
    joined = play.ask_join(member_id, session_timeout_ms=REBALANCE_MS * 2, rebalance_timeout_ms=10_000)
    play.settle()
    assert joined.result.error_code is ErrorCode.NONE
    play.advance(11_000)
    assert play.heartbeat(member_id, joined.result.generation_id) is ErrorCode.UNKNOWN_MEMBER_ID


def test_commits_of_classic_members_require_the_epoch(play: Playbook) -> None:
    modern, classic = Consumer(play, "m"), Classic(play)
    modern.beat()
    classic.join()
    settle(modern)
    classic.live()
    commit = PartitionCommit("t", 0, 1)

    def outcome(**changes: object) -> ErrorCode:
        (code,) = play.commit(commit, **changes)
        return code

    assert outcome(member_id="m", generation_id=modern.epoch) is ErrorCode.NONE
    assert outcome(member_id="m", generation_id=99) is ErrorCode.STALE_MEMBER_EPOCH
    old = {"knows_member_epochs": False}
    assert outcome(member_id="m", generation_id=modern.epoch, **old) is ErrorCode.UNSUPPORTED_VERSION
    assert outcome(member_id=classic.member_id, generation_id=classic.generation, **old) is ErrorCode.NONE
    assert outcome(member_id=classic.member_id, generation_id=99) is ErrorCode.ILLEGAL_GENERATION
    assert outcome(member_id="nobody", generation_id=1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert outcome() is ErrorCode.UNKNOWN_MEMBER_ID
    check = play.coordinator.offsets.check_fetch
    assert check(GROUP, None, -1) is ErrorCode.NONE
    assert check(GROUP, "m", modern.epoch) is ErrorCode.NONE
    assert check(GROUP, "m", 99) is ErrorCode.STALE_MEMBER_EPOCH
    assert check(GROUP, "nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert check("other", "nobody", 1) is ErrorCode.NONE


def test_the_bytes_of_classic_members_of_a_consumer_group_are_limited(
    make_playbook: Callable[..., Playbook],
) -> None:
    play = make_playbook(group_max_bytes=500)
    play.topics.set("t", 4)
    consumer = Consumer(play, "a")
    settle(consumer)
    large = (("range", subscription("t" * 500)),)
    assert Classic(play, protocols=large).join().error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert Classic(play).join().error_code is ErrorCode.NONE


@pytest.mark.parametrize("knows_member_epochs", [False, True])
def test_an_earlier_generation_of_a_classic_member_commits_what_it_has_kept(
    play: Playbook, knows_member_epochs: bool
) -> None:
    """Kafka 4.4 does the same, as a comparison has shown."""
    modern, classic, *later = Consumer(play, "m"), Classic(play), Consumer(play, "n"), Consumer(play, "o")
    modern.beat()
    classic.join()
    for _ in range(4):
        modern.beat()
        classic.live()
    before, had = classic.generation, frozenset().union(*classic.owned.values())
    for _ in range(4):
        for each in (*later, modern):
            each.beat()
        classic.live()
    kept = frozenset().union(*classic.owned.values())
    assert classic.generation > before
    assert frozenset() < kept < had

    def outcomes(generation: int, indexes: frozenset[int]) -> set[ErrorCode]:
        commits = [PartitionCommit("t", index, 1, topic_id=topic_id("t")) for index in indexes]
        fields = {"member_id": classic.member_id, "knows_member_epochs": knows_member_epochs}
        return set(play.commit(*commits, generation_id=generation, **fields))

    assert outcomes(before, kept) == {ErrorCode.NONE}
    assert outcomes(before, had - kept) == {ErrorCode.ILLEGAL_GENERATION}
    assert outcomes(before - 1, kept) == {ErrorCode.ILLEGAL_GENERATION}
    assert outcomes(classic.generation + 1, kept) == {ErrorCode.ILLEGAL_GENERATION}
    assert outcomes(classic.generation, had - kept) == {ErrorCode.NONE}
