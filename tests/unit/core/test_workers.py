"""Tests of threads for long work: turns of addresses, the order within one, failing work, and the end."""

import os
import sys
import threading

import pytest

from klamm.runtime.workers import Workers


def threads(name):
    """Return the threads of workers with this name."""
    return [thread for thread in threading.enumerate() if thread.name.startswith(f"{name}-")]


@pytest.fixture
def held(request):
    """Return workers with one thread that is busy until `release` is set."""
    workers, release, busy = Workers(request.node.name, 1), threading.Event(), threading.Event()

    def hold():
        busy.set()
        release.wait(60)

    workers.submit(hold, "first")
    assert busy.wait(60)
    yield workers, release
    release.set()
    workers.close()


def test_addresses_take_turns(held):
    workers, release = held
    done, through = [], threading.Event()
    storm = [f"a{n}" for n in range(50)]
    for name in storm:
        workers.submit(lambda name=name: done.append(name), "a")
    for name in ("b0", "b1", "c0"):
        workers.submit(lambda name=name: done.append(name), name[0])
    assert workers.waiting == 53
    workers.submit(lambda: None, "a")
    workers.submit(through.set, "a")
    release.set()
    assert through.wait(60)
    assert done[:6] == ["a0", "b0", "c0", "a1", "b1", "a2"]
    assert [name for name in done if name[0] == "a"] == storm
    assert workers.waiting == 0


def test_failing_work_is_logged_and_does_not_end_the_thread(held, caplog):
    workers, release = held
    through = threading.Event()
    workers.submit(lambda: 1 / 0)
    workers.submit(through.set)
    release.set()
    assert through.wait(60)
    assert "work failed" in caplog.text


def test_threads_end_after_their_present_work(held, request):
    workers, release = held
    done = []
    workers.submit(lambda: done.append(1))
    workers.close(timeout_s=0)
    release.set()
    for thread in threads(request.node.name):
        thread.join(60)
    assert threads(request.node.name) == []
    assert done == []


@pytest.fixture
def workers(request):
    made = Workers(request.node.name, 3)
    yield made
    made.close()


def test_threads_start_only_for_waiting_work(workers, request):
    assert threads(request.node.name) == []
    through = threading.Event()
    workers.submit(through.set)
    assert through.wait(60)
    assert len(threads(request.node.name)) == 1
    busy, release = threading.Barrier(4), threading.Event()
    for _ in range(3):
        workers.submit(lambda: (busy.wait(60), release.wait(60)))
    busy.wait(60)
    assert len(threads(request.node.name)) == 3
    release.set()


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priorities of their own")
def test_workers_have_a_lower_priority(workers):
    found, through = [], threading.Event()

    def look():
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        through.set()

    workers.submit(look)
    assert through.wait(60)
    assert found == [min(19, os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) + 10)]


def test_existing_threads_do_the_work_if_no_further_thread_can_start(workers, monkeypatch, caplog):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    through = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        workers.submit(lambda: None)
    assert "cannot start another thread" in caplog.text
    workers.submit(through.set)
    assert through.wait(60)
