"""`Processes`, which starts the processes of the workers, and exchanges messages with them."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import socket
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, Protocol

from klamm.workers.joined_metrics import JoinedMetrics
from klamm.workers.messages import Message, MessageReader, encode, families_from_json

log = logging.getLogger("klamm.workers")
EXIT_BROKEN: Final = 70
"""The exit code of a worker after an unexpected exception: EX_SOFTWARE."""


class WorkerProcess:
    """A worker's process, and the parent's end of the channel. `reporting` is True until requested metrics arrive."""

    def __init__(self, number: int, pid: int, channel: socket.socket) -> None:
        self.number = number
        self.pid = pid
        self.channel = channel
        self.reporting = False

    def send(self, message: bytes) -> bool:
        """Send a message; return False if the worker does not read any more, or has ended."""
        try:
            return self.channel.send(message) == len(message)
        except OSError:
            return False

    def kill(self) -> None:
        """Kill the process."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def fork(number: int, run: Callable[[socket.socket], int], keep: Collection[int]) -> WorkerProcess:
    """Run a function in a new process, whose exit code is the function's result.

    The process keeps only these descriptors of the parent: the standard streams, `keep` and its channel. The parent's
    objects stay unused in its memory, because closing them would close other descriptors with the same numbers.
    """
    ours, theirs = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    # The child still has the descriptors of the parent's loop. A signal to the child must not wake the parent.
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
        # The terminal sends these signals to the parent too, which decides for all workers.
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


_READ_BYTES: Final = 262_144
_REPORT_WITHIN_S: Final = 1.0


class Receiver(Protocol):
    """The object that is notified of events of workers, on the parent's thread."""

    def received(self, number: int, message: Message) -> None:
        """Handle a worker's message other than `metrics` and `connections`."""

    def exited(self, number: int, status: int) -> None:
        """Handle the end of a worker's process; `status` is the result of `os.waitstatus_to_exitcode`."""


class _Open:
    def __init__(self, process: WorkerProcess) -> None:
        self.process = process
        self.reader = MessageReader()


class Processes:
    """The processes of the workers, at most one for each.

    Exporters call `refresh` and `ask` on their threads. The parent's loop calls all other methods.
    """

    def __init__(self, receiver: Receiver, selector: selectors.BaseSelector, joined: JoinedMetrics) -> None:
        self._receiver = receiver
        self._selector = selector
        self._joined = joined
        self._open: dict[int, _Open] = {}
        self._serving: set[int] = set()
        self._asked = 0
        self._answers: dict[int, dict[int, Any]] = {}
        # Protects the processes, the set of those that serve, and the answers. Also wakes exporters that wait for
        # reports or answers.
        self._changed = threading.Condition()

    def fork(self, number: int, run: Callable[[socket.socket], int], keep: Collection[int]) -> int:
        """Start the process of a worker, and return its id."""
        process = fork(number, run, keep)
        with self._changed:
            self._open[number] = _Open(process)
        self._selector.register(process.channel, selectors.EVENT_READ, number)
        return process.pid

    def send(self, number: int, kind: str) -> None:
        """Send a message to a worker. Does nothing if the worker has ended."""
        if number in self._open and not self._open[number].process.send(encode(kind)):
            log.warning("worker %d does not take the message %s", number, kind)

    def kill(self, number: int) -> None:
        """Kill the process of a worker."""
        if number in self._open:
            self._open[number].process.kill()

    def read(self, number: int) -> None:
        """Read and handle a worker's messages."""
        one = self._open.get(number)
        if one is None:
            return
        for message in self._messages(one):
            if message["type"] == "connections":
                with self._changed:
                    self._answers.get(message["ask"], {})[number] = message["answer"]
                    self._changed.notify_all()
                continue
            if message["type"] != "metrics":
                if message["type"] == "ready":
                    with self._changed:
                        self._serving.add(number)
                self._receiver.received(number, message)
                continue
            self._joined.update(number, families_from_json(message["families"]))
            with self._changed:
                one.process.reporting = False
                self._changed.notify_all()

    def _messages(self, one: _Open) -> Iterator[Message]:
        while True:
            try:
                data = one.process.channel.recv(_READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                if one.process.channel in self._selector.get_map():
                    self._selector.unregister(one.process.channel)
                return
            yield from one.reader.feed(data)

    def reap(self) -> None:
        """Handle the processes that have ended."""
        for number, one in list(self._open.items()):
            pid, status = os.waitpid(one.process.pid, os.WNOHANG)
            if not pid:
                continue
            # Read its last messages, e.g. its counts or the reason why it could not start.
            self.read(number)
            if one.process.channel in self._selector.get_map():
                self._selector.unregister(one.process.channel)
            one.process.channel.close()
            self._joined.worker_ended(number)
            with self._changed:
                del self._open[number]
                self._serving.discard(number)
                one.process.reporting = False
                self._changed.notify_all()
            self._receiver.exited(number, os.waitstatus_to_exitcode(status))

    def ask(self, action: str, arguments: Sequence[Any], timeout_s: float, *, one: bool = False) -> dict[int, Any]:
        """Ask the workers about their connections or to call a function; return the answers by number.

        The answer of a worker that has not answered in time is None. With `one`, the workers are asked one after the
        other until one answers. Each gets an equal share of the time. Any thread but the loop's may call this.
        """
        with self._changed:
            self._asked += 1
            ask = self._asked
            message = encode("connections", ask=ask, action=action, arguments=arguments)
            answers = self._answers[ask] = {}
            asked: set[int] = set()
            serving = sorted(self._serving)
            for number in serving:
                # The worker may have ended while another one was asked.
                if number not in self._serving or not self._open[number].process.send(message):
                    continue
                asked.add(number)
                if one:
                    share_s = timeout_s / len(serving)
                    self._changed.wait_for(lambda: bool(answers) or not asked & self._serving, share_s)
                    if answers:
                        break
            if not one:
                self._changed.wait_for(lambda: not (asked & self._serving) - answers.keys(), timeout_s)
            del self._answers[ask]
            return {number: answers.get(number) for number in sorted(asked)}

    def refresh(self) -> None:
        """Request metrics from the workers, and wait up to a second for them. Any thread but the loop's may call this.

        If a worker does not answer, further calls do not wait for it. Until it answers, its last report is used.
        """
        with self._changed:
            asked = []
            for number in sorted(self._serving):
                process = self._open[number].process
                if not process.reporting and process.send(encode("metrics")):
                    process.reporting = True
                    asked.append(process)
            self._changed.wait_for(lambda: not any(one.reporting for one in asked), _REPORT_WITHIN_S)
