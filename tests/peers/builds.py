"""Programs that are built once from public packages into the user's cache directory."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path


def cache_dir() -> Path:
    """Return the user's cache directory for programs that tests and benchmarks build. It may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "klamm-bench"


@contextlib.contextmanager
def alone(name: str) -> Iterator[None]:
    """Hold the lock with this name during the block. Other processes of tests and benchmarks wait for it."""
    folder = cache_dir().with_name("klamm-locks")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def cached(name: str, build: Callable[[Path], Path]) -> Path:
    """Return the path of `name` in the cache. If it is missing, it becomes the file or folder that `build(folder)`
    returns. `folder` is temporary. If `build` raises an exception, nothing is kept.
    """
    target = cache_dir() / name
    if target.exists():
        return target
    with alone(name):
        if target.exists():
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="build-") as folder:
            build(Path(folder)).rename(target)
    return target


def cached_program(name: str, source: Path, build: Callable[[Path, Path], None]) -> Path:
    """Return the program that `build(folder, program)` makes from the files in `source`. It is built again when a file
    changes.

    `build` may use `folder`, which is removed afterwards. It raises an exception if it cannot write `program`.
    """

    def program(folder: Path) -> Path:
        build(folder, folder / name)
        return folder / name

    texts = b"".join(path.name.encode() + path.read_bytes() for path in sorted(source.iterdir()) if path.is_file())
    return cached(f"{name}-{hashlib.sha256(texts).hexdigest()[:16]}", program)
