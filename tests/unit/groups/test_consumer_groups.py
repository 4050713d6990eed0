"""Tests of consumer groups: joins, reconciliation, fencing, leaving, and timeouts."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from consumers import FIRST, Consumer, partitions, settle
from groups_playbook import GROUP, REBALANCE_MS, Call, Playbook, topic_id

from klamm import ErrorCode
from klamm_broker.groups.consumer.group import ConsumerGroup
from klamm_broker.groups.offsets import CommitRequest, PartitionCommit
from klamm_broker.groups.requests import ConsumerHeartbeat

T = topic_id("t")


@pytest.fixture
def play(make_playbook: Callable[..., Playbook]) -> Playbook:
    made = make_playbook()
    made.topics.set("t", 4)
    return made


def test_the_first_member_gets_all_partitions_at_once(play: Playbook) -> None:
    result = play.beat("a", 0)
    assert (result.error_code, result.member_id, result.epoch) == (ErrorCode.NONE, "a", FIRST)
    assert result.heartbeat_interval_ms == 5_000
    assert result.assignment == partitions(t={0, 1, 2, 3})
    described = play.coordinator.consumers.describe(GROUP)
    assert (described.state, described.epoch, described.assignment_epoch) == ("Stable", FIRST, FIRST)
    assert described.assignor == "uniform"


def test_the_answer_to_a_heartbeat_has_no_assignment_if_nothing_changed(play: Playbook) -> None:
    play.beat("a", 0)
    result = play.beat("a", FIRST)
    assert (result.error_code, result.epoch, result.assignment) == (ErrorCode.NONE, FIRST, None)


def test_a_full_heartbeat_gets_the_assignment_again(play: Playbook) -> None:
    play.beat("a", 0)
    result = play.beat("a", FIRST, rebalance_timeout_ms=1, topics=["t"], owned={})
    assert result.assignment == partitions(t={0, 1, 2, 3})


def test_a_partition_moves_after_its_member_has_revoked_it(play: Playbook) -> None:
    a, b = Consumer(play, "a"), Consumer(play, "b")
    a.beat()
    assert b.beat().assignment == {}
    assert b.epoch == FIRST + 1
    result = a.beat()
    assert result.epoch == FIRST
    assert result.assignment is not None
    assert sum(map(len, result.assignment.values())) == 2
    assert play.state_of_group() == "Reconciling"
    # Member a still reports all its partitions, so b gets nothing.
    assert play.beat("a", FIRST, owned=partitions(t={0, 1, 2, 3})).epoch == FIRST
    assert b.beat().assignment is None
    assert a.beat().epoch == FIRST + 1
    assert b.beat().assignment == partitions(t={0, 1, 2, 3} - set(a.owned[T]))
    assert play.state_of_group() == "Stable"


def test_partitions_still_to_be_revoked_are_described(play: Playbook) -> None:
    a, b = Consumer(play, "a"), Consumer(play, "b")
    a.beat()
    b.beat()
    kept = play.beat("a", FIRST, owned=a.owned).assignment
    assert kept is not None
    assert sum(map(len, kept.values())) == 2
    group = play.coordinator.consumers.describe(GROUP)
    described = {each.member_id: each for each in group.members}
    assert described["a"].held == partitions(t={0, 1, 2, 3})
    assert group.target["a"] == kept
    assert described["b"].held == {}


def test_a_member_that_does_not_revoke_in_time_is_fenced(play: Playbook) -> None:
    a, b = Consumer(play, "a"), Consumer(play, "b")
    a.beat()
    b.beat()
    a.beat()
    for _ in range(REBALANCE_MS // 1_000 + 1):
        play.advance(1_000)
        play.beat("a", FIRST, owned=partitions(t={0, 1, 2, 3}))
        b.beat()
    assert play.beat("a", FIRST).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert b.count() == 4


def test_a_silent_member_is_fenced(play: Playbook) -> None:
    a, b = Consumer(play, "a"), Consumer(play, "b")
    settle(a, b, a)
    for _ in range(10):
        play.advance(5_000)
        b.beat()
    settle(b)
    assert b.count() == 4
    assert a.beat().error_code is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("count", [3, 5])
def test_many_members_get_equal_shares_and_no_partition_has_two_readers(play: Playbook, count: int) -> None:
    play.topics.set("t", 7)
    consumers = [Consumer(play, f"m{number}") for number in range(count)]
    for position in range(count):
        for each in consumers[: position + 1]:
            each.beat()
            held = [(topic, index) for one in consumers for topic, all_ in one.owned.items() for index in all_]
            assert len(held) == len(set(held))
    settle(*consumers)
    counts = sorted(each.count() for each in consumers)
    assert sum(counts) == 7
    assert counts[-1] - counts[0] <= 1


def test_a_departure_frees_partitions(play: Playbook) -> None:
    a, b = Consumer(play, "a"), Consumer(play, "b")
    settle(a, b)
    left = play.beat("a", -1)
    assert (left.error_code, left.member_id, left.epoch) == (ErrorCode.NONE, "a", -1)
    settle(b)
    assert b.count() == 4
    play.beat("b", -1)
    assert play.state_of_group() == "Empty"
    assert play.beat("b", b.epoch).error_code is ErrorCode.UNKNOWN_MEMBER_ID


# Fencing


def test_a_member_with_a_wrong_epoch_is_fenced(play: Playbook) -> None:
    a, b = Consumer(play, "a"), Consumer(play, "b")
    settle(a, b)
    assert a.epoch == FIRST + 1
    assert play.beat("a", FIRST + 2).error_code is ErrorCode.FENCED_MEMBER_EPOCH
    assert play.beat("a", FIRST).error_code is ErrorCode.FENCED_MEMBER_EPOCH
    # The answer with the new epoch may have been lost.
    assert play.beat("a", FIRST, owned=a.owned).epoch == FIRST + 1
    assert play.beat("a", FIRST, owned=partitions(t={0, 1, 2, 3})).error_code is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_may_join_again_without_partitions(play: Playbook) -> None:
    a, b = Consumer(play, "a"), Consumer(play, "b")
    settle(a, b)
    again = play.beat("a", 0)
    assert (again.epoch, again.assignment) == (a.epoch, a.owned)


def test_a_member_that_joins_again_has_revoked_its_partitions(play: Playbook) -> None:
    a, b = Consumer(play, "a"), Consumer(play, "b")
    a.beat()
    b.beat()
    a.beat()
    assert play.beat("a", 0).epoch == FIRST + 1
    assert b.beat().assignment is not None


def test_unknown_groups_and_members_are_not_found(play: Playbook) -> None:
    assert play.beat("a", 1).error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert play.beat("a", -1).error_code is ErrorCode.GROUP_ID_NOT_FOUND
    play.beat("a", 0)
    assert play.beat("b", 1).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert play.beat("b", -1).error_code is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    "changes",
    [
        {"group_id": ""},
        {"group_id": " "},
        {"instance_id": ""},
        {"rack_id": ""},
        {"rebalance_timeout_ms": -1},
        {"owned": None},
        {"owned": partitions(t={0})},
        {"topics": None},
        {"epoch": -3},
        {"epoch": -2},
        {"member_id": "", "generates_member_id": False},
    ],
)
def test_contradictory_fields_are_refused(play: Playbook, changes: dict[str, object]) -> None:
    result = play.ask_beat("a", 0, **changes).result
    assert result.error_code is ErrorCode.INVALID_REQUEST
    assert result.error_message


def test_the_server_can_generate_a_member_id(play: Playbook) -> None:
    result = play.beat("", 0)
    assert result.error_code is ErrorCode.NONE
    assert result.member_id


def test_unknown_assignors_are_refused(play: Playbook) -> None:
    result = play.beat("a", 0, assignor="best")
    assert result.error_code is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert result.error_message == "ServerAssignor best is not supported. Supported assignors: uniform, range."


def test_most_members_choose_the_assignor(play: Playbook) -> None:
    settle(Consumer(play, "a", assignor="range"), Consumer(play, "b", assignor="range"), Consumer(play, "c"))
    assert play.coordinator.consumers.describe(GROUP).assignor == "range"


@pytest.mark.parametrize(
    "left_out", [(), ("rebalance_timeout_ms",), ("owned",), ("topics",), ("rebalance_timeout_ms", "owned")]
)
def test_only_a_heartbeat_with_all_fields_counts_as_full(left_out: tuple[str, ...]) -> None:
    fields = {"rebalance_timeout_ms": REBALANCE_MS, "owned": {}, "topics": ["t"]}
    given = {name: value for name, value in fields.items() if name not in left_out}
    beat = ConsumerHeartbeat(GROUP, "a", FIRST, "client", "/host")
    assert beat._replace(**given).is_full == (not left_out)
    assert beat._replace(**given, regex="t.*").is_full == ({*left_out} <= {"topics"})
    assert beat._replace(**given, epoch=0).is_full


def test_a_full_group_accepts_no_further_member(make_playbook: Callable[..., Playbook]) -> None:
    play = make_playbook(group_consumer_max_size=1)
    play.beat("a", 0)
    assert play.beat("b", 0).error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert play.beat("a", 0).error_code is ErrorCode.NONE


def test_the_bytes_of_a_groups_members_are_limited(make_playbook: Callable[..., Playbook]) -> None:
    play = make_playbook(group_max_bytes=900)
    small, large, larger = (["t" * 100], *([name * 200 for name in names] for names in ("tuv", "tuvw")))
    a, b, c = (Consumer(play, name, topics=small) for name in "abc")
    settle(a, b)
    assert b.beat(topics=large).error_code is ErrorCode.NONE
    for topics in (larger, [*large, "other" * 40]):
        assert b.beat(topics=topics).error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert c.beat(topics=large).error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert c.beat(topics=[], regex="r" * 250).error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    # A member whose larger request is refused stays as it was.
    settle(a, b)
    # Other members may use the bytes that a member gives back. A member that leaves gives back all.
    assert b.beat(topics=small).error_code is ErrorCode.NONE
    assert c.beat(topics=large).error_code is ErrorCode.NONE
    assert a.beat(topics=large).error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    play.beat("c", -1)
    assert a.beat(topics=large).error_code is ErrorCode.NONE


# Static members


def test_a_static_member_comes_back_without_a_rebalance(play: Playbook) -> None:
    a, b = Consumer(play, "a", instance_id="i"), Consumer(play, "b")
    settle(a, b)
    held, epoch = a.owned, a.epoch
    assert play.beat("a", -2, instance_id="i").epoch == -2
    back = Consumer(play, "a2", instance_id="i")
    result = back.beat()
    assert (result.epoch, result.assignment) == (epoch, held)
    assert b.beat().epoch == epoch
    assert a.beat().error_code is ErrorCode.FENCED_INSTANCE_ID


def test_an_instance_id_is_taken_until_its_member_leaves(play: Playbook) -> None:
    a = Consumer(play, "a", instance_id="i")
    a.beat()
    assert Consumer(play, "b", instance_id="i").beat().error_code is ErrorCode.UNRELEASED_INSTANCE_ID
    assert play.beat("b", 1, instance_id="i").error_code is ErrorCode.FENCED_INSTANCE_ID
    assert play.beat("a", 1, instance_id="j").error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert play.beat("a", -1, instance_id="i").error_code is ErrorCode.NONE
    assert Consumer(play, "b", instance_id="i").beat().error_code is ErrorCode.NONE


def test_an_instance_id_is_free_after_its_member_has_given_it_up(play: Playbook) -> None:
    Consumer(play, "a", instance_id="i").beat()
    assert Consumer(play, "a", instance_id="j").beat().error_code is ErrorCode.NONE
    assert Consumer(play, "b", instance_id="i").beat().error_code is ErrorCode.NONE
    for member_id in ("a", "b"):
        assert play.beat(member_id, -1).error_code is ErrorCode.NONE
    for instance_id in ("i", "j"):
        assert Consumer(play, "c", instance_id=instance_id).beat().error_code is ErrorCode.NONE


def test_a_refused_join_does_not_replace_a_static_member(make_playbook: Callable[..., Playbook]) -> None:
    play = make_playbook(group_max_bytes=2_000)
    play.topics.set("t", 4)
    a = Consumer(play, "a", instance_id="i")
    a.beat()
    play.beat("a", -2, instance_id="i")
    large = Consumer(play, "b", instance_id="i", rack_id="r" * 3_000)
    assert large.beat().error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert Consumer(play, "c", instance_id="i").beat().assignment == a.owned


def test_a_member_that_replaces_a_static_member_leaves_its_own_place(play: Playbook) -> None:
    a, b = Consumer(play, "a", instance_id="i"), Consumer(play, "b")
    settle(a, b)
    play.beat("a", -2, instance_id="i")
    both = Consumer(play, "b", instance_id="i")
    settle(both)
    assert both.count() == 4


def test_a_static_member_that_stays_away_loses_its_partitions(play: Playbook) -> None:
    a, b = Consumer(play, "a", instance_id="i"), Consumer(play, "b")
    settle(a, b)
    play.beat("a", -2, instance_id="i")
    for _ in range(10):
        play.advance(5_000)
        b.beat()
    settle(b)
    assert b.count() == 4


# Topics and subscriptions


def test_new_partitions_are_assigned(play: Playbook) -> None:
    a = Consumer(play, "a")
    a.beat()
    play.topics.set("t", 6)
    settle(a)
    assert (a.epoch, a.count()) == (FIRST + 1, 6)


def test_assignments_follow_created_and_deleted_topics(play: Playbook) -> None:
    a = Consumer(play, "a", topics=["t", "u"])
    a.beat()
    play.topics.set("u", 1)
    settle(a)
    assert a.owned == partitions(t={0, 1, 2, 3}, u={0})
    play.topics.set("t", 0)
    settle(a)
    assert a.owned == partitions(u={0})
    play.topics.set("other", 1)
    settle(a)
    assert a.epoch == FIRST + 2


def test_a_changed_subscription_is_a_new_epoch(play: Playbook) -> None:
    play.topics.set("u", 2)
    a = Consumer(play, "a")
    a.beat()
    result = a.beat(topics=["u"])
    assert result.assignment == {}
    settle(a)
    assert a.owned == partitions(u={0, 1})


def test_a_regular_expression_follows_the_topics(play: Playbook) -> None:
    play.topics.set("tea", 1)
    a = Consumer(play, "a", topics=None, regex="t.*")
    a.beat()
    assert a.owned == partitions(t={0, 1, 2, 3}, tea={0})
    play.topics.set("ten", 1)
    play.topics.set("at", 1)
    settle(a)
    assert a.owned == partitions(t={0, 1, 2, 3}, tea={0}, ten={0})
    a.beat(regex="", topics=["at"])
    settle(a)
    assert a.owned == partitions(at={0})


def test_an_expression_matches_only_topics_that_the_client_may_describe(play: Playbook) -> None:
    play.topics.set("tea", 1)
    a = Consumer(play, "a", topics=None, regex="t.*", may_describe=lambda name: name != "t")
    a.beat()
    assert a.owned == partitions(tea={0})


def test_permissions_are_looked_up_again_in_time(play: Playbook) -> None:
    a = Consumer(play, "a", topics=None, regex="t", may_describe=lambda _name: False)
    a.beat()
    assert a.owned == {}
    for _ in range(600_000 // 5_000):
        play.advance(5_000)
        a.beat()
    assert a.count() == 4


def test_a_leaving_member_causes_no_lookup_of_other_members_topics(
    play: Playbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [Consumer(play, f"m{number}", topics=["t", "u"]) for number in range(20)]
    for each in members:
        each.beat()
    looked_up: list[str] = []
    get = play.topics.get
    monkeypatch.setattr(play.topics, "get", lambda name: (looked_up.append(name), get(name))[1])
    for each in members[1:]:
        assert play.beat(each.member_id, -1).error_code is ErrorCode.NONE
    assert looked_up == []
    group = play.coordinator.registry.get(GROUP)
    assert isinstance(group, ConsumerGroup)
    assert group.subscriptions == {(frozenset({"t", "u"}), ""): 1}
    settle(members[0])
    assert members[0].count() == 4


def test_a_permission_is_asked_for_once_for_all_expressions(play: Playbook) -> None:
    def note(name: str) -> bool:
        asked.append(name)
        return True

    asked: list[str] = []
    members = [
        Consumer(play, f"m{number}", topics=None, regex=f"t|other-{number}", may_describe=note) for number in range(5)
    ]
    for each in members:
        each.beat()
    asked.clear()
    play.topics.set("u", 1)
    members[0].beat(may_describe=note)
    assert asked == ["t"]


def test_many_expressions_are_looked_up_in_several_passes(play: Playbook) -> None:
    """A pass ends after 50 ms, and the next begins half a second later. Every expression gets its turn."""

    def slow(name: str) -> bool:
        looked_up.append(name)
        play.clock.advance_ms(30)
        return True

    looked_up: list[str] = []
    members = [Consumer(play, f"m{number}", topics=None, regex=f"{number}.*") for number in range(5)]
    for each in members:
        each.beat(may_describe=slow)
    for number in range(5):
        play.topics.set(f"{number}-topic", 1)
    passes = []
    for _ in range(5):
        looked_up.clear()
        members[0].beat(may_describe=slow)
        passes.append(len(looked_up))
        members[0].beat(may_describe=slow)
        assert len(looked_up) == passes[-1], "not before its time"
        play.clock.advance_ms(600)
    assert passes == [2, 2, 1, 0, 0]
    settle(*members)
    assert [each.count() for each in members] == [1] * 5


@pytest.mark.parametrize("regex", ["(", "a{1001}", "(?=a)", r"(a)\1"])
def test_other_expressions_are_refused(play: Playbook, regex: str) -> None:
    result = play.beat("a", 0, topics=None, regex=regex)
    assert result.error_code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert regex in (result.error_message or "")
    assert play.beat("a", 1).error_code is ErrorCode.GROUP_ID_NOT_FOUND


def test_an_expression_is_checked_after_group_member_and_epoch(play: Playbook) -> None:
    assert play.beat("a", 1, regex="(").error_code is ErrorCode.GROUP_ID_NOT_FOUND
    epoch = play.beat("a", 0).epoch
    assert play.beat("b", 1, regex="(").error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert play.beat("a", epoch + 1, regex="(").error_code is ErrorCode.FENCED_MEMBER_EPOCH
    assert play.beat("a", epoch, regex="(").error_code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert play.beat("a", -1, regex="(").error_code is ErrorCode.NONE


def test_a_member_without_topics_gets_nothing(play: Playbook) -> None:
    result = play.beat("a", 0, topics=[])
    assert (result.error_code, result.assignment) == (ErrorCode.NONE, {})


def commit(play: Playbook, member_id: str, epoch: int, *indexes: int) -> set[ErrorCode]:
    """Commit positions of "t". Return the outcomes."""
    commits = [PartitionCommit("t", index, 1, topic_id=T) for index in indexes]
    return set(play.commit(*commits, member_id=member_id, generation_id=epoch))


def commit_in_transaction(play: Playbook, member_id: str, epoch: int, *indexes: int) -> set[ErrorCode]:
    call: Call[Sequence[ErrorCode]] = Call()
    commits = [PartitionCommit("t", index, 1, topic_id=T) for index in indexes]
    play.coordinator.transactional_offsets.commit(7, CommitRequest(GROUP, commits, epoch, member_id), call)
    play.settle()
    return set(call.result)


@pytest.mark.parametrize("end", [None, "crash"])
@pytest.mark.parametrize("committed", [commit, commit_in_transaction])
def test_with_an_earlier_epoch_a_member_can_commit_partitions_that_it_has_kept(
    play: Playbook, committed: Callable[..., set[ErrorCode]], end: str | None
) -> None:
    stale = ErrorCode.STALE_MEMBER_EPOCH
    a, b = Consumer(play, "a"), Consumer(play, "b")
    a.beat()
    b.beat()
    a.beat()
    # Partitions that the member must still revoke can be committed in its epoch.
    assert committed(play, "a", FIRST, 0, 1, 2, 3) == {ErrorCode.NONE}
    settle(a, b)
    assert a.epoch == b.epoch == FIRST + 1
    if end is not None:
        getattr(play, end)()
    kept, gone = sorted(a.owned[T]), sorted(b.owned[T])
    assert committed(play, "a", FIRST, *kept) == {ErrorCode.NONE}
    assert committed(play, "a", FIRST - 1, *kept) == {stale}
    assert committed(play, "a", FIRST, *kept, gone[0]) == {stale}
    assert committed(play, "a", FIRST + 2, *kept) == {stale}
    assert committed(play, "b", FIRST, *gone) == {stale}
    # With the current epoch a member may commit any partition, as in Kafka.
    assert committed(play, "a", FIRST + 1, *gone) == {ErrorCode.NONE}


def test_a_transaction_may_commit_offsets_without_naming_a_member(play: Playbook) -> None:
    Consumer(play, "a").beat()
    assert commit_in_transaction(play, "", -1, 0) == {ErrorCode.NONE}
    assert commit_in_transaction(play, "", -2, 0) == {ErrorCode.UNKNOWN_MEMBER_ID}


@pytest.mark.parametrize("seed", range(8))
def test_commits_are_accepted_by_the_epochs_of_returned_assignments(play: Playbook, seed: int) -> None:
    rng = random.Random(seed)
    alive: dict[str, Consumer] = {}
    since: dict[str, dict[int, int]] = {}

    def beat(member: Consumer) -> bool:
        before = member.epoch, member.owned
        assert member.beat().error_code is ErrorCode.NONE
        known = since.setdefault(member.member_id, {})
        owned = member.owned.get(T, frozenset())
        since[member.member_id] = {index: known.get(index, member.epoch) for index in owned}
        return before != (member.epoch, member.owned)

    for number in range(12):
        if alive and rng.random() < 0.35:
            gone = alive.pop(rng.choice(sorted(alive)))
            play.beat(gone.member_id, -1)
        else:
            alive[f"m{number}"] = Consumer(play, f"m{number}")
        for _ in range(rng.randrange(4)):
            if alive:
                beat(rng.choice(list(alive.values())))
        if rng.random() < 0.2:
            play.crash()
        if rng.random() < 0.5:
            for _ in range(20):
                if not sum(beat(each) for each in alive.values()):
                    break
            else:
                raise AssertionError("the group does not settle")
            for member in alive.values():
                returned = since[member.member_id]
                for index in range(4):
                    for epoch in range(member.epoch + 2):
                        is_taken = epoch == member.epoch or returned.get(index, member.epoch) <= epoch < member.epoch
                        expected = ErrorCode.NONE if is_taken else ErrorCode.STALE_MEMBER_EPOCH
                        assert commit(play, member.member_id, epoch, index) == {expected}, (seed, number, index, epoch)
