"""`Platform`: one operating system's calls. `KLAMM_PLATFORM=generic` selects all fallbacks, to test them on Linux."""

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
"""What Python's `select` takes on Windows."""


@dataclass(frozen=True, slots=True)
class Platform:
    """None and False stand for what is not there: callers go another way.

    `epoll()` makes a poller; without it `selector()` makes one that watches at most `max_watched` sockets.
    `has_eventfd`, `has_sendfile`, `has_splice` and `has_memory_files` are about calls of `os`.
    `sender_of_parts(socket)` is its `sendmsg`, or what sends one buffer after another.
    `accepted_inherit`: an accepted socket has the options of the listening one.
    `pread`, `preadv` and `pwrite` are those of `os`; where they are not, one thread at a time seeks.
    `open(path, flags, mode)` is that of `os`, for files that no child process gets, without translated line ends. They
    can be renamed, by `replace`, and deleted while they are open; if `keeps_open_files`, so can directories with them.
    `sync(descriptor)` waits until the disk has a file, `sync_file_system` until it has all files. `directory_flags`
    open a directory, e.g. to sync it; they are 0 where directories cannot be opened.
    `has_modes`: modes of files say who has access.
    `take_lock(descriptor)` locks an open file for as long as it is open, or raises BlockingIOError if another one has
    the lock; `wait_for_lock` waits for it.
    `has_thread_priorities`: a thread can have a lower priority than the others of its process.
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
    """Return the platform of this system, or the generic one. Raises ValueError if KLAMM_PLATFORM has another value."""
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
        # Not the default of Linux, which is epoll.
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
