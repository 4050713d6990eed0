"""Threads, signals and limits of a process, on systems that lack some of them."""

from __future__ import annotations

import os
import sys
import threading
from typing import Final

from klamm.runtime.platform.systems import PLATFORM

_NICER_BY: Final = 10
_MORE_FILES: Final = 1_048_576
_MORE_FILES_OF_MACOS: Final = 10_240
_LOOK_EVERY_S: Final = 0.5


def lower_priority() -> None:
    """Lower the calling thread's priority by 10 steps of niceness, where the system has priorities of threads."""
    if sys.platform == "linux" and PLATFORM.has_thread_priorities:
        # Linux takes a thread id for PRIO_PROCESS.
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, min(19, os.getpriority(os.PRIO_PROCESS, thread) + _NICER_BY))


def give_way() -> None:
    """Let other threads of this core go first, where threads have priorities."""
    if sys.platform == "linux" and PLATFORM.has_thread_priorities:
        os.sched_yield()


def wait_for_signal(noted: threading.Event) -> None:
    """Wait until the handler of a signal has set an event. For the main thread."""
    # On Windows, handlers run only between two waits.
    while not noted.wait(None if PLATFORM.has_signals else _LOOK_EVERY_S):
        pass


def raise_descriptor_limit() -> None:
    """Raise the limit of open files to the hard limit: connections and segments need descriptors."""
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
