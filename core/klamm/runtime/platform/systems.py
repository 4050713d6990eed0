"""`Platform`: the calls of one operating system. `KLAMM_PLATFORM=generic` selects all fallbacks, for tests on Linux."""

from __future__ import annotations

import os
import select
import selectors
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from klamm.runtime.platform import fallbacks, open_files

_GENERIC: Final = "generic"
_VARIABLE: Final = "KLAMM_PLATFORM"
_SELECT_AT_MOST: Final = 512
"""The number of sockets that Python's `select` can watch on Windows."""


@dataclass(frozen=True, slots=True)
class Platform:
    """The calls of an operating system. A call that is None, or whose flag is False, is missing in the system.

    - `epoll()` makes a poller. Without it, `selector()` makes one. A `max_watched` that is not None limits the number
      of its sockets.
    - `has_eventfd`, `has_sendfile`, `has_splice` and `has_memory_files` are True if `os` has these calls.
    - `sender_of_parts(socket)` returns the socket's `sendmsg`, or a function that sends one buffer after the other.
    - `accepted_inherit` is True if an accepted socket inherits the options of the listening socket.
    - `pread`, `preadv` and `pwrite` are the functions of `os`, or fallbacks in which one thread at a time seeks.
    - `open(path, flags, mode)` is like `os.open`, but child processes do not inherit the file, and line ends are not
      translated. An open file can be deleted, and renamed with `replace`. If `keeps_open_files` is True, directories
      that contain open files can be deleted and renamed too.
    - `sync(descriptor)` waits until the disk has a file, `sync_file_system(descriptor)` until it has all files.
    - `directory_flags` are the flags that open a directory, e.g. to sync it; 0 if directories cannot be opened.
    - `has_modes` is True if the modes of files control the access to them.
    - `take_lock(descriptor)` locks an open file until it is closed, or raises BlockingIOError if another process has
      the lock. `wait_for_lock(descriptor)` waits for the lock.
    - `has_thread_priorities` is True if a thread can have a lower priority than the other threads of its process.
    """

    name: str
    epoll: Callable[[], Any] | None
    selector: Callable[[], selectors.BaseSelector]
    max_watched: int | None
    has_eventfd: bool
    sender_of_parts: Callable[[socket.socket], fallbacks.SendParts]
    has_sendfile: bool
    has_splice: bool
    has_memory_files: bool
    accepted_inherit: bool
    pread: Callable[[int, int, int], bytes]
    preadv: Callable[[int, Any, int], int]
    pwrite: Callable[[int, Any, int], int]
    open: Callable[[str | Path, int, int], int]
    replace: Callable[[str | Path, str | Path], None]
    keeps_open_files: bool
    sync: Callable[[int], None]
    sync_file_system: Callable[[int], None]
    directory_flags: int
    has_modes: bool
    take_lock: Callable[[int], None]
    wait_for_lock: Callable[[int], None]
    has_thread_priorities: bool


def _sendmsg(sock: socket.socket) -> fallbacks.SendParts:
    return sock.sendmsg


def find_platform(environment: Mapping[str, str] = os.environ) -> Platform:
    """Return the platform of this system, or the generic one. Raises ValueError for a wrong value of KLAMM_PLATFORM."""
    wanted = environment.get(_VARIABLE, "")
    if wanted not in ("", _GENERIC):
        raise ValueError(f'{_VARIABLE} must be unset or "{_GENERIC}", not "{wanted}"')
    is_linux, is_windows = sys.platform == "linux" and not wanted, sys.platform == "win32"
    found = set() if wanted else set(dir(os))
    take_lock, wait_for_lock = fallbacks.locks(is_generic=bool(wanted))
    seeking = fallbacks.SeekingFiles()
    return Platform(
        name=wanted or sys.platform,
        epoll=None if wanted else getattr(select, "epoll", None),
        # The default selector of Linux is epoll, which must not be used here.
        selector=getattr(selectors, "PollSelector", selectors.SelectSelector) if wanted else selectors.DefaultSelector,
        max_watched=_SELECT_AT_MOST if is_windows else None,
        has_eventfd="eventfd" in found,
        sender_of_parts=fallbacks.sender_in_turns if wanted or is_windows else _sendmsg,
        has_sendfile="sendfile" in found,
        has_splice="splice" in found,
        has_memory_files="memfd_create" in found and os.path.isdir("/proc/self/fd"),
        accepted_inherit=is_linux,
        pread=os.pread if "pread" in found else seeking.pread,
        preadv=os.preadv if "preadv" in found else seeking.preadv,
        pwrite=os.pwrite if "pwrite" in found else seeking.pwrite,
        open=open_files.open_shared if is_windows else open_files.open_alone,
        replace=open_files.replace_patiently if is_windows else os.replace,
        keeps_open_files=not (wanted or is_windows),
        sync=open_files.find_sync(),
        sync_file_system=open_files.sync_by_syncfs if is_linux else open_files.sync_all,
        directory_flags=getattr(os, "O_DIRECTORY", 0),
        has_modes=not is_windows,
        take_lock=take_lock,
        wait_for_lock=wait_for_lock,
        has_thread_priorities=is_linux,
    )


PLATFORM: Final = find_platform()
"""The platform of this process."""
