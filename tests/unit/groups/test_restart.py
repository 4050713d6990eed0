"""Tests of classic groups and their offsets after a restart or a crash."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from groups_playbook import GROUP, INITIAL_DELAY_MS, SESSION_MS, Playbook

from klamm import ErrorCode
from klamm_broker.groups.offsets import PartitionCommit


def restart(play: Playbook) -> None:
    play.restart()


def crash(play: Playbook) -> None:
    play.crash()


either_way = pytest.mark.parametrize("again", [restart, crash])


@either_way
def test_members_continue_with_the_same_generation(play: Playbook, again: Callable[[Playbook], None]) -> None:
    ids = play.stable_group(3)
    play.commit(PartitionCommit("t", 0, 7), member_id=ids[0], generation_id=1)
    before = play.coordinator.administration.describe(GROUP)
    again(play)

    assert play.loaded == 1
    assert play.coordinator.administration.describe(GROUP) == before
    assert [play.heartbeat(member_id, 1) for member_id in ids] == [ErrorCode.NONE] * 3
    assert play.ask_sync(ids[2], 1).result.assignment == b"2"
    assert play.fetch()["t"][0] is not None
    assert play.commit(PartitionCommit("t", 0, 8), member_id=ids[1], generation_id=1) == [ErrorCode.NONE]


def test_members_that_stay_away_fail_one_session_after_the_restart(play: Playbook) -> None:
    first, second = play.stable_group(2)
    play.advance(SESSION_MS - 1)
    play.restart()
    play.advance(SESSION_MS - 1)
    assert play.heartbeat(first, 1) is ErrorCode.NONE
    play.advance(2)
    assert play.heartbeat(second, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert play.ask_join(first).result.generation_id == 2


def test_the_next_rebalance_continues_from_the_stored_generation(play: Playbook) -> None:
    first, second = play.stable_group(2)
    play.restart()
    joins = [play.ask_join(first), play.ask_join(second)]
    assert [join.result.generation_id for join in joins] == [2, 2]
    assert joins[0].result.leader_id == first


def test_a_crash_during_a_rebalance_restores_the_last_stable_generation(play: Playbook) -> None:
    first, second = play.stable_group(2)
    play.ask_join(first)
    play.ask_join(second)
    assert play.heartbeat(first, 2) is ErrorCode.NONE
    play.crash()
    assert play.heartbeat(first, 2) is ErrorCode.ILLEGAL_GENERATION
    assert play.state() == "Stable"
    assert play.ask_join(first).waits


def test_an_assignment_is_sent_only_once_it_is_durable(play: Playbook) -> None:
    member_id = play.promised_id()
    join = play.ask_join(member_id)
    play.advance(INITIAL_DELAY_MS)
    sync = play.ask_sync(member_id, join.result.generation_id, {member_id: b"a"})
    play.crash()
    assert sync.waits
    assert play.state() == "Empty"


@either_way
def test_a_static_members_new_id_survives(play: Playbook, again: Callable[[Playbook], None]) -> None:
    joins = [play.ask_join(group_instance_id="one")]
    play.advance(INITIAL_DELAY_MS)
    old = joins[0].result.member_id
    play.sync_all([old], joins)
    takeover = play.ask_join(group_instance_id="one")
    play.settle()
    again(play)

    new = takeover.result.member_id
    assert play.heartbeat(old, 1, "one") is ErrorCode.FENCED_INSTANCE_ID
    assert play.heartbeat(new, 1, "one") is ErrorCode.NONE
    assert play.ask_sync(new, 1, group_instance_id="one").result.assignment == b"0"


@either_way
def test_an_answered_leave_survives_a_restart(play: Playbook, again: Callable[[Playbook], None]) -> None:
    (member_id,) = play.stable_group(1)
    play.leave(member_id)
    again(play)
    assert play.state() == "Empty"
    join = play.ask_join(play.promised_id())
    play.advance(INITIAL_DELAY_MS)
    assert join.result.generation_id == 3, "generations never go back"


def test_a_group_that_has_grown_too_large_rebalances(make_playbook: Callable[..., Playbook]) -> None:
    play = make_playbook()
    ids = play.stable_group(3)
    play.restart(group_max_size=2)
    assert play.heartbeat(ids[0], 1) is ErrorCode.REBALANCE_IN_PROGRESS
    joins = [play.ask_join(member_id) for member_id in ids]
    play.advance(1)
    assert joins[2].result.error_code is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_subscriptions_are_known_after_a_restart(play: Playbook) -> None:
    play.stable_group(1)
    play.restart()
    outcomes: list[object] = []
    play.coordinator.offsets.delete(GROUP, {"t": [0], "u": [0]}, outcomes.append)
    play.settle()
    assert outcomes == [{"t": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, "u": ErrorCode.NONE}]


def test_acknowledged_commits_survive_kill_9(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import itertools, os, pathlib, sys
        from groups_playbook import Playbook
        from klamm_broker.groups.offsets import CommitRequest, PartitionCommit

        play = Playbook(pathlib.Path(sys.argv[1]))
        play.store.start()
        for number in itertools.count():
            play.coordinator.offsets.commit(
                CommitRequest("g", [PartitionCommit("t", number % 50, number)]),
                lambda codes, number=number: os.write(1, b"%d %d\\n" % (number, codes[0])),
            )
            if number % 200 == 199:
                play.store.write_and_wait([])
        """
    )
    path = tmp_path / "klamm.db"
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), str(Path(__file__).parent)])},
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(1_000)]
    process.send_signal(signal.SIGKILL)
    lines += [line for line in process.stdout.read().splitlines(True) if line.endswith(b"\n")]
    process.wait()
    process.stdout.close()

    acknowledged: dict[int, int] = {}
    for line in lines:
        number, code = map(int, line.split())
        assert code == ErrorCode.NONE
        acknowledged[number % 50] = number
    play = Playbook(path)
    fetched = play.fetch(group_id="g")["t"]
    for partition, number in acknowledged.items():
        committed = fetched[partition]
        assert committed is not None
        assert committed.offset >= number
    play.close()


def test_no_rows_remain_of_removed_members(play: Playbook) -> None:
    ids = play.stable_group(3)
    play.leave(ids[1], ids[2])
    join = play.ask_join(ids[0])
    play.sync_all([ids[0]], [join])
    with sqlite3.connect(play.path) as connection:
        rows = connection.execute("SELECT member_id FROM group_members").fetchall()
    connection.close()
    assert rows == [(ids[0],)]
