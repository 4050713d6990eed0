"""The ledgers of groups count what the groups have, after any requests, deaths and restarts.

Groups in use continue at a limit.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from groups_playbook import GROUP, Call, Playbook, subscription
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from klamm import ErrorCode
from klamm_broker.groups.classic_group import ClassicGroup
from klamm_broker.groups.consumer.group import _MATCH_BYTES, ConsumerGroup
from klamm_broker.groups.group import OFFSET_BYTES, CommittedOffset, Group, GroupLedgers, OffsetBook
from klamm_broker.groups.member import charge_bytes
from klamm_broker.groups.offsets import CommitRequest, PartitionCommit
from klamm_broker.groups.requests import EpochHeartbeatResult, ShareHeartbeat
from klamm_broker.groups.share.group import ShareGroup
from klamm_broker.limits.ledger import FREE_FOR_NEW, Ledger

GROUPS = ("group", "g2", "grüppe")
OWNERS = ("", "User:a", "192.0.2.7")
DAY_MS = 86_400_000


def members_bytes(group: Group) -> Counter[str]:
    """Return the bytes of a group's members, by the principal that has joined with them."""
    assert isinstance(group, ClassicGroup | ConsumerGroup | ShareGroup)
    counted: Counter[str] = Counter()
    for member in group.members.values():
        counted[member.owner] += member.charge_bytes
    if isinstance(group, ClassicGroup):
        for member_id in group.pending_joins:
            counted[group._pending_owners[member_id]] += charge_bytes(len(member_id), 0)
    if isinstance(group, ConsumerGroup):
        for each in group.regexes.values():
            counted[each.owner] += len(each.topics) * _MATCH_BYTES
    return counted


def offsets_bytes(group: Group) -> Counter[str]:
    """Return the bytes of a group's offsets, by the principal that has committed them."""
    book = group.book
    counted: Counter[str] = Counter()
    for topic, by_partition in book.offsets.items():
        for each in by_partition.values():
            counted[each.owner] += book.bytes_of(topic, each)
    for pending in book.pending.values():
        for (topic, _), each in pending.items():
            counted[each.owner] += book.bytes_of(topic, each)
    return counted


class Ledgers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.play = Playbook(Path(self.folder.name) / "klamm.db", offsets_retention_minutes=1440)
        for name in ("t", "u"):
            self.play.topics.set(name, 4)

    def teardown(self) -> None:
        self.play.close()
        self.folder.cleanup()

    names = st.sampled_from(GROUPS)
    owners = st.sampled_from(OWNERS)
    members = st.sampled_from(("m1", "m2"))
    commits = st.lists(
        st.builds(
            PartitionCommit,
            st.sampled_from(("t", "u")),
            st.integers(0, 3),
            st.just(7),
            metadata=st.sampled_from((None, "x" * 100, "x" * 300, "ü" * 300)),
        ),
        min_size=1,
        max_size=4,
    )

    @rule(name=names, owner=owners, commits=commits)
    def commit(self, name: str, owner: str, commits: list[PartitionCommit]) -> None:
        self.play.ask_commit(*commits, group_id=name, owner=owner)

    @rule(name=names, owner=owners, commits=commits, producer=st.integers(1, 2))
    def commit_in_transaction(self, name: str, owner: str, commits: list[PartitionCommit], producer: int) -> None:
        request = CommitRequest(name, commits, owner=owner)
        self.play.coordinator.transactional_offsets.commit(producer, request, lambda _: None)

    @rule(producer=st.integers(1, 2), committed=st.booleans())
    def end(self, producer: int, committed: bool) -> None:
        self.play.coordinator.transactional_offsets.end(producer, lambda _: None, committed=committed)
        self.play.settle()

    @rule(name=names, owner=owners, known=st.booleans())
    def join(self, name: str, owner: str, known: bool) -> None:
        protocols = (("range", subscription("t")),)
        self.play.ask_join(group_id=name, owner=owner, protocols=protocols, requires_known_member_id=known)

    @rule(name=names, member=members, owner=owners, epoch=st.sampled_from((0, 0, -1)), regex=st.booleans())
    def beat(self, name: str, member: str, owner: str, epoch: int, regex: bool) -> None:
        wanted = {"regex": "t.*"} if regex else {"topics": ["t", "u"]}
        self.play.ask_beat(member, epoch, group_id=name, owner=owner, rebalance_timeout_ms=1000, owned={}, **wanted)

    @rule(name=names, member=members, owner=owners, epoch=st.sampled_from((0, 0, -1)))
    def beat_share(self, name: str, member: str, owner: str, epoch: int) -> None:
        request = ShareHeartbeat(name, member, epoch, "client", "/host", topics=["t"], owner=owner)
        self.play.coordinator.shares.heartbeat(request, lambda _: None)

    @rule(name=names)
    def delete(self, name: str) -> None:
        self.play.coordinator.administration.delete_groups([name], lambda _: None)

    @rule(topics=st.sets(st.sampled_from(("t", "u"))))
    def delete_topics(self, topics: set[str]) -> None:
        self.play.settle()
        self.play.coordinator.offsets.topics_deleted(topics)

    @rule(ms=st.sampled_from((1000, 60_000, 2 * DAY_MS)))
    def advance(self, ms: int) -> None:
        self.play.advance(ms)

    @rule()
    def restart(self) -> None:
        self.play.settle()
        self.play.restart()

    @invariant()
    def counts_are_what_there_is(self) -> None:
        self.play.settle()
        groups = self.play.coordinator.registry.all()
        ledgers = self.play.ledgers
        assert ledgers.groups.used == sum(group.book.group_bytes for group in groups)
        offsets = sum(map(offsets_bytes, groups), Counter[str]())
        members = sum(map(members_bytes, groups), Counter[str]())
        assert ledgers.offsets.used == offsets.total()
        assert ledgers.members.used == members.total()
        for owner in OWNERS[1:]:
            own = [group for group in groups if group.book.owner == owner]
            assert ledgers.groups.used_by(owner) == sum(group.book.group_bytes for group in own)
            assert ledgers.offsets.used_by(owner) == offsets[owner]
            assert ledgers.members.used_by(owner) == members[owner]

    @invariant()
    def owners_are_those_of_the_store(self) -> None:
        stored = dict(self.play.store.read("SELECT name, owner FROM state_owners WHERE kind = 'group'"))
        for group in self.play.coordinator.registry.all():
            if group.offsets:
                assert stored.get(group.group_id, "") == group.book.owner
        names = {group.group_id: group for group in self.play.coordinator.registry.all()}
        for name, topic, index, owner in self.play.store.read("SELECT group_id, topic, partition, owner FROM offsets"):
            assert names[name].offsets[topic][index].owner == owner


TestLedgers = Ledgers.TestCase
TestLedgers.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def limited(groups: int = 1 << 40, members: int = 1 << 40, offsets: int = 1 << 40) -> Callable[[], GroupLedgers]:
    """Return ledgers with these totals. One owner may have half of each."""
    return lambda: GroupLedgers(
        Ledger("groups", groups, 0.5, ErrorCode.GROUP_MAX_SIZE_REACHED),
        Ledger("group members", members, 0.5, ErrorCode.GROUP_MAX_SIZE_REACHED),
        Ledger("offsets", offsets, 0.5, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    )


def test_one_owner_cannot_use_up_the_offsets_of_others(make_playbook: Callable[..., Playbook]) -> None:
    play = make_playbook(make_ledgers=limited(offsets=100 * OFFSET_BYTES))

    outcomes = [play.commit(PartitionCommit("t", index, 1), owner="User:mallory")[0] for index in range(100)]
    honest = play.ask_commit(PartitionCommit("t", 0, 1), group_id="honest", owner="User:alice")
    play.settle()

    assert 20 < outcomes.count(ErrorCode.NONE) < 50
    assert set(outcomes) == {ErrorCode.NONE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    assert honest.result == [ErrorCode.NONE]
    assert play.ledgers.offsets.refused > 0


def test_a_commit_stores_as_many_offsets_as_have_room(make_playbook: Callable[..., Playbook]) -> None:
    play = make_playbook(make_ledgers=limited(offsets=100 * OFFSET_BYTES))

    outcomes = play.commit(*(PartitionCommit("t", index, 1) for index in range(100)), owner="User:mallory")

    kept = outcomes.count(ErrorCode.NONE)
    assert 20 < kept < 50
    assert list(outcomes) == [ErrorCode.NONE] * kept + [ErrorCode.INVALID_COMMIT_OFFSET_SIZE] * (100 - kept)
    assert len(play.fetch()["t"]) == kept


def test_offsets_count_for_the_client_that_commits_them(make_playbook: Callable[..., Playbook]) -> None:
    """Another client may have made the group.

    It neither pays for these offsets nor loses its room, also after a restart.
    """
    play = make_playbook(make_ledgers=limited(offsets=100 * OFFSET_BYTES))
    assert play.commit(PartitionCommit("t", 0, 1), owner="User:alice") == [ErrorCode.NONE]

    outcomes = play.commit(*(PartitionCommit("u", index, 1) for index in range(100)), owner="User:mallory")

    assert ErrorCode.INVALID_COMMIT_OFFSET_SIZE in outcomes
    assert play.commit(*(PartitionCommit("t", index, 2) for index in range(1, 6)), owner="User:alice") == [0] * 5
    used = {owner: play.ledgers.offsets.used_by(owner) for owner in ("User:alice", "User:mallory")}
    assert OFFSET_BYTES * 6 < used["User:alice"] < OFFSET_BYTES * 7 < used["User:mallory"]
    play.restart()
    assert {owner: play.ledgers.offsets.used_by(owner) for owner in used} == used


@pytest.mark.parametrize("is_restarted", [False, True])
def test_members_count_for_the_client_that_joins(make_playbook: Callable[..., Playbook], is_restarted: bool) -> None:
    play = make_playbook(make_ledgers=limited(members=1_048_576))
    play.topics.set("t", 1)
    play.beat("alice", 0, owner="User:alice")
    topics = [f"{number:0249}" for number in range(300)]

    beats = [play.beat(f"mallory-{number}", 0, topics=topics, owner="User:mallory") for number in range(10)]
    if is_restarted:
        play.restart()

    assert ErrorCode.GROUP_MAX_SIZE_REACHED in [beat.error_code for beat in beats]
    assert play.ledgers.members.used_by("User:mallory") > 300_000
    assert 4096 < play.ledgers.members.used_by("User:alice") < 8192
    assert play.beat("bob", 0, owner="User:alice").error_code is ErrorCode.NONE


class Interrupted(Ledger):
    """A store in which another thread's join happens between a check and the action after it."""

    def __init__(self, total: int) -> None:
        super().__init__("group members", total, 1.0, ErrorCode.GROUP_MAX_SIZE_REACHED)
        self.interruption: Callable[[], object] = lambda: None

    def fits(self, owner: str, amount: int, *, in_use: bool = False) -> bool:
        return self.interrupt(super().fits(owner, amount, in_use=in_use))

    def reserve(self, owner: str, amount: int, *, in_use: bool = False) -> bool:
        return self.interrupt(super().reserve(owner, amount, in_use=in_use))

    def interrupt(self, has_room: bool) -> bool:
        interruption, self.interruption = self.interruption, lambda: None
        interruption()
        return has_room


@pytest.mark.parametrize("kind", ["classic", "consumer", "share"])
def test_two_simultaneous_joins_do_not_use_the_same_room(make_playbook: Callable[..., Playbook], kind: str) -> None:
    ledger = Interrupted(1 << 40)
    play = make_playbook(make_ledgers=lambda: GroupLedgers(Ledger("groups"), ledger, Ledger("offsets")))
    play.topics.set("t", 1)
    results: list[Call[Any]] = []

    def join(group_id: str, member: str) -> None:
        if kind == "classic":
            results.append(play.ask_join(group_id=group_id, requires_known_member_id=False))
        elif kind == "consumer":
            results.append(play.ask_beat(member, 0, group_id=group_id))
        else:
            results.append(Call())
            request = ShareHeartbeat(group_id, member, 0, "client", "/host", topics=["t"])
            play.coordinator.shares.heartbeat(request, results[-1])

    for group_id in ("one", "two"):
        join(group_id, "first")
        play.settle()
    ledger.total = int((ledger.used + 1.5 * ledger.used / 2) / FREE_FOR_NEW)
    results.clear()
    ledger.interruption = lambda: join("two", "second")
    join("one", "second")
    play.advance(10_000)

    assert sorted(call.result.error_code for call in results) == [ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert ledger.used <= ledger.total * FREE_FOR_NEW


def test_a_join_without_protocols_makes_no_group(make_playbook: Callable[..., Playbook]) -> None:
    play = make_playbook()

    for changes in ({"protocols": ()}, {"protocol_type": ""}):
        answer = play.ask_join(**changes).result
        assert (answer.error_code, answer.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    play.settle()

    assert play.state_of_group() is None
    assert play.ledgers.groups.used == 0
    assert play.store.read("SELECT * FROM state_owners") == []


def test_an_existing_group_can_commit_at_the_limit(make_playbook: Callable[..., Playbook]) -> None:
    play = make_playbook(make_ledgers=limited(offsets=10 * OFFSET_BYTES))
    assert play.commit(PartitionCommit("t", 0, 1), owner="User:alice") == [ErrorCode.NONE]
    play.ledgers.offsets.add("User:mallory", 10 * OFFSET_BYTES)

    for offset in range(100):
        assert play.commit(PartitionCommit("t", 0, offset, metadata="m" * 100)) == [ErrorCode.NONE]
    outcomes = play.commit(PartitionCommit("t", 0, 200, metadata="m" * 4000), PartitionCommit("t", 1, 1))

    assert outcomes == [ErrorCode.INVALID_COMMIT_OFFSET_SIZE] * 2
    fetched = play.fetch({"t": [0]})["t"][0]
    assert fetched is not None
    assert fetched.offset == 99


def test_at_the_limit_a_new_group_is_refused_and_an_existing_one_continues(
    make_playbook: Callable[..., Playbook],
) -> None:
    play = make_playbook(make_ledgers=limited(groups=20 * 4096))
    play.topics.set("t", 1)
    beat = {"topics": ["t"], "owned": {}, "rebalance_timeout_ms": 1000, "owner": "User:mallory"}
    answers = [play.ask_beat("m", 0, group_id=f"g{number}", **beat) for number in range(20)]
    play.settle()
    codes = [answer.result.error_code for answer in answers]

    assert codes.count(ErrorCode.NONE) == 9
    assert set(codes[9:]) == {ErrorCode.GROUP_MAX_SIZE_REACHED}
    joined = play.ask_join(group_id="g19", owner="User:mallory")
    assert joined.result.error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    again = play.ask_beat("m", answers[0].result.epoch, group_id="g0")
    play.settle()
    assert again.result.error_code is ErrorCode.NONE
    honest = play.beat("m", 0, group_id="honest", owner="User:alice")
    assert honest.error_code is ErrorCode.NONE


def test_members_are_limited_over_all_groups(make_playbook: Callable[..., Playbook]) -> None:
    play = make_playbook(make_ledgers=limited(members=10 * 1_048_576))
    topics = [f"{number:0249}" for number in range(4000)]
    beat = {"topics": topics, "owned": {}, "rebalance_timeout_ms": 1000, "owner": "User:mallory"}
    answers = [play.ask_beat("m", 0, group_id=f"g{number}", **beat) for number in range(20)]
    play.settle()

    codes = [answer.result.error_code for answer in answers]
    assert codes.count(ErrorCode.NONE) == 3
    assert play.ledgers.members.used < 5 * 1_048_576
    honest = play.beat("m", 0, group_id="honest", topics=topics, owner="User:alice")
    assert honest.error_code is ErrorCode.NONE


def test_names_that_no_topic_can_have_are_refused(make_playbook: Callable[..., Playbook]) -> None:
    play = make_playbook()

    answer = play.beat("m", 0, topics=["n" * 250], owned={}, rebalance_timeout_ms=1000)

    assert answer.error_code is ErrorCode.INVALID_REQUEST
    assert play.state_of_group(GROUP) is None


def join_classic(play: Playbook, group_id: str) -> ErrorCode:
    return play.ask_join(group_id=group_id, owner="User:mallory").result.error_code


def join_consumer(play: Playbook, group_id: str) -> ErrorCode:
    """Join a consumer group. The server generates the member's id, or the client does."""
    return play.beat("", 0, group_id=group_id, owner="User:mallory", generates_member_id=True).error_code


def join_share(play: Playbook, group_id: str) -> ErrorCode:
    call: Call[EpochHeartbeatResult] = Call()
    request = ShareHeartbeat(group_id, "m", 0, "client", "/host", topics=["t"], owner="User:mallory")
    play.coordinator.shares.heartbeat(request, call)
    play.settle()
    return call.result.error_code


@pytest.mark.parametrize("join", [join_classic, join_consumer, join_share])
def test_a_member_without_room_makes_no_group(
    make_playbook: Callable[..., Playbook], join: Callable[[Playbook, str], ErrorCode]
) -> None:
    play = make_playbook(make_ledgers=limited(members=100_000))
    play.topics.set("t", 1)
    play.ledgers.members.add("User:mallory", 45_000)

    assert join(play, "invented") is ErrorCode.GROUP_MAX_SIZE_REACHED
    play.settle()
    assert play.state_of_group("invented") is None
    assert play.ledgers.groups.used == 0
    assert play.store.read("SELECT * FROM state_owners") == []


@pytest.mark.parametrize("join", [join_classic, join_consumer])
def test_a_member_beyond_the_bytes_of_a_group_makes_none(
    make_playbook: Callable[..., Playbook], join: Callable[[Playbook, str], ErrorCode]
) -> None:
    play = make_playbook(group_max_bytes=1)

    assert join(play, "invented") is ErrorCode.GROUP_MAX_SIZE_REACHED
    play.settle()
    assert play.state_of_group("invented") is None


class LowestLedger(Ledger):
    """A ledger that keeps the lowest value that it has counted."""

    lowest = 1 << 60

    def add(self, owner: str, amount: int) -> None:
        super().add(owner, amount)
        self.lowest = min(self.lowest, self.used)


@pytest.mark.parametrize("in_transaction", [False, True])
def test_other_commits_find_no_room_while_reserved_offsets_begin_to_count(in_transaction: bool) -> None:
    ledger, book = LowestLedger("offsets", 1 << 30), OffsetBook(GROUP)
    book.open_account(GroupLedgers(Ledger("groups"), Ledger("members"), ledger), "User:a")
    commits = [("t", index, CommittedOffset(1, -1, "m" * 4096, 0, owner="User:a")) for index in range(3)]
    refused, reserved_bytes = book.reserve("User:a", commits)
    assert (refused, ledger.used) == ([], reserved_bytes)
    ledger.lowest = ledger.used
    if in_transaction:
        book.add_pending(7, {each[:2]: each[2] for each in commits}, ("User:a", reserved_bytes))
    else:
        book.put(commits, ("User:a", reserved_bytes))
    assert ledger.lowest == ledger.used == ledger.used_by("User:a") == reserved_bytes > 0
