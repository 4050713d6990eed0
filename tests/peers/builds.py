"""Programs that are built once from public packages into the user's cache directory."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def cache_dir() -> Path:
    """Of the user, for what tests and benchmarks build; it may not be there yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "klamm-bench"


def cached_program(name: str, source: Path, build: Callable[[Path, Path], None]) -> Path:
    """The program that `build(folder, program)` makes of the files in `source`: built again when one of them changes.

    `build` may use `folder`, which is removed afterwards, and raises when it cannot write `program`.
    """
    texts = b"".join(path.name.encode() + path.read_bytes() for path in sorted(source.iterdir()) if path.is_file())
    cache = cache_dir()
    program = cache / f"{name}-{hashlib.sha256(texts).hexdigest()[:16]}"
    if not program.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=f"{name}-") as folder:
            partial = Path(folder) / name
            build(Path(folder), partial)
            partial.rename(program)
    return program
