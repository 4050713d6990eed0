"""`Platform`: one operating system's calls. `KLAMM_PLATFORM=generic` takes each fallback, to try them on Linux."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from klamm.runtime.platform import fallbacks

_GENERIC: Final = "generic"
_VARIABLE: Final = "KLAMM_PLATFORM"


@dataclass(frozen=True, slots=True)
class Platform:
    """None stands for what is not there: callers go another way.

    `epoll()` makes a poller; `has_eventfd` and `has_splice` are about the calls of `os`, `has_sendfile` too.
    `pread`, `preadv` and `pwrite` are those of `os`; where they are not, one thread at a time seeks.
    `take_lock(descriptor)` locks an open file for as long as it is open, or raises BlockingIOError if another one has
    the lock; `wait_for_lock` waits for it. `open_flags` belong to each `os.open` of a file.
    `directory_flags` open a directory, e.g. to sync it; they are 0 where directories cannot be opened.
    """

    name: str
    epoll: Callable[[], Any] | None
    has_eventfd: bool
    has_sendfile: bool
    has_splice: bool
    pread: Callable[[int, int, int], bytes]
    preadv: Callable[[int, Any, int], int]
    pwrite: Callable[[int, Any, int], int]
    take_lock: Callable[[int], None]
    wait_for_lock: Callable[[int], None]
    open_flags: int
    directory_flags: int


def find_platform(environment: Mapping[str, str] = os.environ) -> Platform:
    """Return the platform of this system, or the generic one. Raises ValueError for another value of the variable."""
    wanted = environment.get(_VARIABLE, "")
    if wanted not in ("", _GENERIC):
        raise ValueError(f'{_VARIABLE}="{wanted}": it is unset, or "{_GENERIC}"')
    found = set() if wanted else set(dir(os))
    take_lock, wait_for_lock = fallbacks.locks(is_generic=bool(wanted))
    seeking = fallbacks.SeekingFiles()
    return Platform(
        wanted or sys.platform,
        None if wanted else getattr(select, "epoll", None),
        "eventfd" in found,
        "sendfile" in found,
        "splice" in found,
        os.pread if "pread" in found else seeking.pread,
        os.preadv if "preadv" in found else seeking.preadv,
        os.pwrite if "pwrite" in found else seeking.pwrite,
        take_lock,
        wait_for_lock,
        fallbacks.open_flags(),
        getattr(os, "O_DIRECTORY", 0),
    )


PLATFORM: Final = find_platform()
"""The platform of this process."""
