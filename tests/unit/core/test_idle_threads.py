"""A thread that waits for work keeps no reference to the last task, which may have held a large request."""

import weakref
from contextlib import closing

import pytest

from klamm.runtime.workers import Workers
from klamm_broker.log.serial_worker import SerialWorker
from klamm_broker.storage.store import Store
from tests.waiting import wait_until


class Piece:
    """A task, or a callback for a durable write."""

    def __init__(self):
        self.done = []

    def __call__(self, *_results):
        self.done.append(True)


def by_workers(_directory):
    workers = Workers("test", 1)
    return workers, lambda piece: workers.submit(piece, "source")


def by_serial_worker(_directory):
    worker = SerialWorker("test")
    return worker, worker.submit


def by_store(directory):
    store = Store(directory / "klamm.db")
    store.open()
    store.start()
    return store, lambda piece: store.submit([], piece)


@pytest.mark.parametrize("make", [by_workers, by_serial_worker, by_store])
def test_an_idle_thread_keeps_no_reference_to_its_last_task(make, tmp_path):
    owner, submit = make(tmp_path)
    with closing(owner):
        piece = Piece()
        done, kept = piece.done, weakref.ref(piece)
        submit(piece)
        del piece
        wait_until(lambda: done)
        wait_until(lambda: kept() is None)
