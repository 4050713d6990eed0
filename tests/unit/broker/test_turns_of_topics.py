"""Tests that changes of topics take turns."""

from __future__ import annotations

import threading

import pytest

from klamm_broker.topics import topic_registry
from klamm_broker.topics.placement import NewTopic
from tests.unit.broker.broker_harness import BrokerHarness
from tests.waiting import wait_until


def test_other_changes_run_between_the_writes_of_a_large_creation(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The creator does not lock the registry again before a waiting thread has had it."""
    monkeypatch.setattr(topic_registry, "_CHANGED_AT_ONCE", 2)
    harness.create_topic("neighbour")
    topics = harness.broker.topics
    neighbour = topics.get("neighbour")
    assert neighbour is not None
    changes: list[int] = []

    def alter() -> None:
        topics.set_overrides(neighbour, {})
        changes.append(len(topics.all()))

    threads: list[threading.Thread] = []

    def check_turn() -> None:
        # The second topic of each write is created while the registry is locked.
        if len(threads) % 2:
            threads.append(threading.Thread(target=alter))
            threads[-1].start()
            wait_until(lambda: topics._lock.is_awaited)
        else:
            threads.append(threading.current_thread())

    topics.create_all({f"t-{number}": NewTopic(1, {}) for number in range(8)}, check_turn)
    for thread in threads[1::2]:
        thread.join(30)
    assert changes == [3, 5, 7, 9]
