"""Threads for checks: turns between addresses, order within one, work that fails, and the end."""

import threading

import pytest

from klamm.workers import Workers


@pytest.fixture
def held():
    """One thread that is busy until `release` is set."""
    workers, release, busy = Workers("test", 1), threading.Event(), threading.Event()

    def hold():
        busy.set()
        release.wait(10)

    workers.submit(hold, "first")
    assert busy.wait(10)
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
    assert through.wait(10)
    assert done[:6] == ["a0", "b0", "c0", "a1", "b1", "a2"]
    assert [name for name in done if name[0] == "a"] == storm
    assert workers.waiting == 0


def test_work_that_fails_is_logged_and_ends_nothing(held, caplog):
    workers, release = held
    through = threading.Event()
    workers.submit(lambda: 1 / 0)
    workers.submit(through.set)
    release.set()
    assert through.wait(10)
    assert "work failed" in caplog.text


def test_threads_end_with_what_they_are_doing(held):
    workers, release = held
    done = []
    workers.submit(lambda: done.append(1))
    closing = threading.Thread(target=workers.close, args=(10,))
    closing.start()
    with workers._changed:
        assert workers._changed.wait_for(lambda: workers._stopping, 10)
    release.set()
    closing.join(10)
    assert not any(thread.is_alive() for thread in workers._threads)
    assert done == []
