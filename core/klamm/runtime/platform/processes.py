"""Functions for the priority of threads, for signals and for the limit of open files. A system may lack any of them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Final

from klamm.runtime.platform.systems import PLATFORM

_NICER_BY: Final = 10
_MORE_FILES: Final = 1_048_576
_MORE_FILES_OF_MACOS: Final = 10_240


def lower_priority() -> None:
    """Lower the calling thread's priority by 10 steps of niceness, where the system has priorities of threads."""
    if sys.platform == "linux" and PLATFORM.has_thread_priorities:
        # On Linux, PRIO_PROCESS accepts the id of a thread.
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, min(19, os.getpriority(os.PRIO_PROCESS, thread) + _NICER_BY))


def give_way() -> None:
    """Let other threads of this core run first, on systems where threads have priorities."""
    if sys.platform == "linux" and PLATFORM.has_thread_priorities:
        os.sched_yield()


@contextlib.contextmanager
def received_signals(*names: str) -> Iterator[socket.socket]:
    """Receive the signals of these names as bytes of a socket. Names that the system lacks are ignored.

    Call this on the main thread. A handler in Python would be worse: it may run while the main thread holds a lock, and
    does not run while the main thread waits for a lock.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        for name in names:
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), lambda _number, _frame: None)
        try:
            yield ours
        finally:
            signal.set_wakeup_fd(before)


def raise_descriptor_limit() -> None:
    """Raise the limit of open files to the hard limit, because connections and segments need descriptors."""
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_unlimited = hard == resource.RLIM_INFINITY
    for wanted in (_MORE_FILES, _MORE_FILES_OF_MACOS) if is_unlimited else (min(hard, _MORE_FILES),):
        if wanted <= soft:
            return
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            break
        except (ValueError, OSError):
            continue
