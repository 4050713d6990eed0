"""Tests of signals that the main thread of a server receives as bytes of a socket."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from klamm.runtime.platform.processes import received_signals

pytestmark = pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="threads have no masks of signals")


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    numbers = signal.SIGUSR1, signal.SIGUSR2
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def test_signals_arrive_and_unknown_names_are_ignored() -> None:
    with received_signals("SIGUSR1", "SIGUSR2", "SIGNONE") as received:
        received.settimeout(60)
        for number in (signal.SIGUSR2, signal.SIGUSR1):
            os.kill(os.getpid(), number)
            assert received.recv(1) == bytes([number])


def test_a_signal_that_another_thread_gets_ends_the_wait() -> None:
    waiting, done = threading.Event(), threading.Event()

    def other() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
        waiting.wait(60)
        os.kill(os.getpid(), signal.SIGUSR1)
        done.wait(60)

    with received_signals("SIGUSR1") as received:
        received.settimeout(60)
        # Only the other thread can get this signal.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        thread = threading.Thread(target=other)
        thread.start()
        try:
            waiting.set()
            assert received.recv(1) == bytes([signal.SIGUSR1])
        finally:
            done.set()
            thread.join()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
