"""The process of a worker: forked from the parent, and closes everything that it does not need."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Collection
from typing import Final

log = logging.getLogger("klamm.workers")

EXIT_BROKEN: Final = 70
"""The exit code of a worker whose own code raised: EX_SOFTWARE."""


class WorkerProcess:
    """A process and the parent's end of the channel to it. `reporting` is True while its metrics are requested."""

    def __init__(self, number: int, pid: int, channel: socket.socket) -> None:
        self.number = number
        self.pid = pid
        self.channel = channel
        self.reporting = False

    def send(self, message: bytes) -> bool:
        """Send a message; return False if the worker has stopped reading, or has ended."""
        try:
            return self.channel.send(message) == len(message)
        except OSError:
            return False

    def kill(self) -> None:
        """End the process at once."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def fork(number: int, run: Callable[[socket.socket], int], keep: Collection[int]) -> WorkerProcess:
    """Run a function in a new process, which ends with its result as the exit code.

    The process keeps only these of the parent's descriptors: the standard ones, those of `keep` and its channel. The
    parent's objects stay in its memory, unused, because closing them would close descriptors with the same number.
    """
    ours, theirs = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    # A signal to the child must not reach the parent's loop through descriptors that the child still has.
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        ours.setblocking(False)
        return WorkerProcess(number, pid, ours)
    code = EXIT_BROKEN
    try:
        signal.set_wakeup_fd(-1)
        for each in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(each, signal.SIG_DFL)
        # The parent also gets these signals, from the terminal or the operator, and decides.
        for each in (signal.SIGINT, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _close_others({0, 1, 2, theirs.fileno(), *keep})
        code = run(theirs)
    except BaseException:
        log.exception("worker %d failed", number)
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _close_others(keep: Collection[int]) -> None:
    folder = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    for number in map(int, os.listdir(folder)):
        if number not in keep:
            with contextlib.suppress(OSError):
                os.close(number)
