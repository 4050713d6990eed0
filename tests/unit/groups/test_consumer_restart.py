"""Tests of consumer groups after a restart or a kill, and while the store fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from consumers import FIRST, Consumer, partitions, settle
from groups_playbook import GROUP, Playbook
from test_migration import Classic, group_type, live_classic_group

from klamm import ErrorCode
from klamm_broker.groups.offsets import PartitionCommit
from klamm_broker.storage.store import StoreError


@pytest.fixture
def play(make_playbook: Callable[..., Playbook]) -> Playbook:
    made = make_playbook()
    made.topics.set("t", 4)
    return made


@pytest.mark.parametrize("end", ["restart", "crash"])
def test_members_continue_after_a_restart(play: Playbook, end: str) -> None:
    a, b = Consumer(play, "a", instance_id="i"), Consumer(play, "b", topics=None, regex="t")
    classic = Classic(play)
    settle(a, b)
    classic.join()
    settle(a, b)
    classic.live()
    settle(a, b)
    play.commit(PartitionCommit("t", 0, 3), member_id="a", generation_id=a.epoch)
    before = play.coordinator.consumers.describe(GROUP)
    getattr(play, end)()
    assert play.coordinator.consumers.describe(GROUP) == before
    epochs = a.epoch, b.epoch
    settle(a, b)
    classic.live()
    assert (a.epoch, b.epoch) == epochs
    assert play.fetch({"t": [0]})["t"][0] is not None


def test_a_revocation_continues_after_a_crash(play: Playbook) -> None:
    a, b = Consumer(play, "a"), Consumer(play, "b")
    a.beat()
    b.beat()
    a.beat()
    play.crash()
    # b must not get a partition before the server knows that a has revoked it.
    assert b.beat().assignment is None
    settle(a, b)
    assert (a.count(), b.count()) == (2, 2)


def test_a_revocation_that_ends_in_a_crash_is_timed(play: Playbook) -> None:
    a, b = Consumer(play, "a"), Consumer(play, "b")
    a.beat()
    b.beat()
    a.beat()
    play.crash()
    for _ in range(13):
        play.advance(5_000)
        play.beat("a", FIRST, owned=partitions(t={0, 1, 2, 3}))
        b.beat()
    assert b.count() == 4


def test_sessions_start_again_after_a_restart(play: Playbook) -> None:
    Consumer(play, "a").beat()
    play.crash()
    play.advance(44_000)
    assert play.state_of_group() == "Stable"
    play.advance(2_000)
    assert play.state_of_group() == "Empty"


def test_topics_that_changed_meanwhile_are_seen(play: Playbook) -> None:
    a = Consumer(play, "a")
    a.beat()
    play.restart()
    play.topics.set("t", 5)
    settle(a)
    assert (a.epoch, a.count()) == (FIRST + 1, 5)


def test_permissions_are_asked_for_with_the_first_heartbeat(play: Playbook) -> None:
    """This also holds soon after a machine's start, when the clock shows less than an expression's maximum age."""
    play.topics.set("tea", 1)
    a = Consumer(play, "a", topics=None, regex="t.*", may_describe=lambda name: name != "tea")
    settle(a)
    play.restart()
    a.beat(may_describe=lambda name: name != "tea")
    assert a.owned == partitions(t={0, 1, 2, 3})


def test_unanswered_changes_are_lost_in_a_crash(play: Playbook) -> None:
    Consumer(play, "a").beat()
    call = play.ask_beat("b", 0)
    assert call.waits
    play.crash()
    assert [member.member_id for member in play.coordinator.consumers.describe(GROUP).members] == ["a"]


def test_a_deleted_group_does_not_return_after_a_restart(play: Playbook) -> None:
    Consumer(play, "a").beat()
    play.beat("a", -1)
    outcomes: list[object] = []
    play.coordinator.administration.delete_groups([GROUP], outcomes.append)
    play.settle()
    assert outcomes == [{GROUP: ErrorCode.NONE}]
    play.restart()
    assert play.state_of_group() is None


def test_a_group_with_members_is_not_deleted(play: Playbook) -> None:
    Consumer(play, "a").beat()
    outcomes: list[object] = []
    play.coordinator.administration.delete_groups([GROUP], outcomes.append)
    assert outcomes == [{GROUP: ErrorCode.NON_EMPTY_GROUP}]


def test_an_empty_group_is_deleted_with_its_last_offset(play: Playbook) -> None:
    a = Consumer(play, "a")
    a.beat()
    play.commit(PartitionCommit("t", 0, 3), member_id="a", generation_id=FIRST)
    play.beat("a", -1)
    play.advance(10_080 * 60_000)
    assert play.state_of_group() is None
    play.restart()
    assert play.state_of_group() is None


def test_an_upgraded_group_exists_once_after_a_restart(play: Playbook) -> None:
    live_classic_group(play)
    play.beat("m", 0)
    play.crash()
    assert group_type(play) == "consumer"
    play.beat("m", -1)
    play.crash()
    assert group_type(play) == "classic"
    assert play.state() == "Stable"


def test_a_write_that_fails_is_tried_again(play: Playbook, monkeypatch: pytest.MonkeyPatch) -> None:
    transact = play.store.transact

    def fail(*_args: object, **_kwargs: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(play.store, "transact", fail)
    assert play.beat("a", 0).error_code is ErrorCode.NOT_COORDINATOR
    monkeypatch.setattr(play.store, "transact", transact)
    assert play.beat("a", 0).error_code is ErrorCode.NONE
    play.crash()
    assert [member.member_id for member in play.coordinator.consumers.describe(GROUP).members] == ["a"]
