"""Repeated `kill -9` while the audit writes: each synced event exists once, and losses are reported."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from klamm_spark.spool.layout import NO_CHAIN, Seal, beside, chain_of, open_segments, sealed_segments
from tests.audit_spool import assert_numbered, events_of, read_segment
from tests.peers.audit_load import Load, audit_settings, read_events
from tests.peers.interrupted_changes import leave_interrupted
from tests.peers.klamm_server import KlammServer
from tests.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]
ANSWERED_FIRST = 40
"""Number of requests of a server's run that the test sees in the spool before it may kill the server."""
LONGEST_WAIT_S = 0.4


@pytest.mark.parametrize("rounds", [10, pytest.param(50, marks=pytest.mark.slow)])
def test_no_durable_event_is_lost_or_doubled(tmp_path: Path, rounds: int, seed: int) -> None:
    moments = random.Random(seed)
    due: set[tuple[str, int]] = set()
    folder = tmp_path / "spool" / "node-1"
    with KlammServer(tmp_path / "server", audit_settings(tmp_path / "spool")) as server:
        for life in range(rounds):
            load = Load(server.port, life)
            load.wait_for_answers(ANSWERED_FIRST)
            wait_for_events(folder, load.answered.copy())
            time.sleep(moments.uniform(0, LONGEST_WAIT_S))
            due |= requests_of(folder)
            server.kill9()
            load.join()
            server.start()
    events = read_events(folder)
    found = Counter((event["client_id"], event["correlation_id"]) for event in events if _is_of_a_load(event))
    assert len(due) >= ANSWERED_FIRST * rounds
    assert due - found.keys() == set()
    assert set(found.values()) == {1}
    assert len({event["event_id"] for event in events}) == len(events)
    _sequences_have_no_hole(events)
    _crashes_are_reported(events, rounds)
    _seals_fit(folder)


def wait_for_events(folder: Path, answered: set[tuple[str, int]]) -> None:
    wait_until(lambda: answered <= requests_of(folder), "the event of an answered request did not come")


def requests_of(folder: Path) -> set[tuple[str, int]]:
    """Return client id and correlation id of each request whose event is written. No `kill -9` can remove these
    events.
    """
    while True:
        try:
            segments = [read_segment(path) for path in (*sealed_segments(folder), *open_segments(folder))]
        except FileNotFoundError:
            continue  # A segment was sealed, and has another name.
        lines = [line for segment in segments for line in segment.splitlines(keepends=True) if line.endswith(b"\n")]
        events = [json.loads(line) for line in lines]
        return {(event["client_id"], event["correlation_id"]) for event in events if _is_of_a_load(event)}


def _is_of_a_load(event: dict[str, Any]) -> bool:
    return event["kind"] == "request" and str(event.get("client_id")).startswith("life-")


def _sequences_have_no_hole(events: list[dict[str, Any]]) -> None:
    by_boot: dict[str, list[int]] = {}
    for event in events:
        by_boot.setdefault(event["boot"], []).append(event["seq"])
    assert all(seqs == list(range(len(seqs))) for seqs in by_boot.values())
    assert list(by_boot) == sorted(by_boot)


def _crashes_are_reported(events: list[dict[str, Any]], rounds: int) -> None:
    gaps = [event for event in events if event["kind"] == "audit_gap"]
    last_of = {event["boot"]: event["seq"] for event in events}
    assert len(gaps) == rounds
    for gap in gaps:
        assert gap["action"] in ("unclean_stop", "torn_tail")
        assert gap["gap_first_seq"] == last_of.get(gap["gap_boot"], -1) + 1


def _seals_fit(folder: Path) -> None:
    assert open_segments(folder) == []
    chain = NO_CHAIN
    for path in sealed_segments(folder):
        seal = Seal.read(beside(path, ".seal"))
        assert seal.events == len(read_segment(path).splitlines())
        assert seal.previous_chain == chain
        chain = seal.chain
        assert chain == chain_of(seal.previous_chain, seal.sha256, seal.lines_sha256)


def test_a_change_that_a_kill_interrupts_is_in_the_trail_before_and_after_its_execution(tmp_path: Path) -> None:
    assert leave_interrupted(tmp_path) == {"done"}
    events = events_of(tmp_path / "spool")
    assert_numbered(events)
    changes = [event for event in events if event.get("api_name") == "CreateTopics"]
    assert [(one["action"], one["outcome"], one["resources"][0]["name"]) for one in changes] == [
        ("interrupted", "unknown", "done"),
        ("interrupted", "unknown", "stuck"),
    ]
    assert {(one["client_id"], one["principal"], one["client_address"]) for one in changes} == {
        ("eve", "User:ANONYMOUS", "127.0.0.1")
    }
