"""Reads the segments of a spool, without Spark. All commands use it, and the server may write at the same time."""

from __future__ import annotations

from pathlib import Path

from klamm_spark.errors import LakeError
from klamm_spark.settings.spark import Pipeline
from klamm_spark.spool.compression import decompress
from klamm_spark.spool.layout import (
    COMPRESSED_SUFFIXES,
    OPEN_SUFFIX,
    SEAL_SUFFIX,
    SEALED_SUFFIX,
    Seal,
    beside,
    find_file,
    is_sealed,
    node_folder_of,
    parse_name,
    segment_files,
)
from klamm_spark.storage.filesystems import SPOOL_IS_A_FILE, AnyPath, read_file


def spool_of(pipeline: Pipeline) -> str | Path:
    """Return the location of a pipeline's spool. Raises LakeError if none is configured."""
    if pipeline.spool is None:
        raise LakeError("no spool is configured: give a file that has [audit] spool, or --spool DIR")
    return pipeline.spool


def read_seal(segment: AnyPath) -> Seal | None:
    """Return the seal of a sealed segment; None if it is missing or cannot be read."""
    if parse_name(segment.name) is None:
        return None
    try:
        return Seal.read(beside(segment, SEAL_SUFFIX))
    except (OSError, ValueError):
        return None


def segments_of(node_folder: Path, *, live: bool = True) -> dict[str, Path]:
    """Return a stream's segments by their names, oldest first; with `live`, also those that are being written.

    While a segment is sealed, it may have an open and a sealed file. Then this returns the sealed one.
    """
    found: dict[str, Path] = {}
    for path in segment_files(node_folder):
        stem = path.name.partition(".")[0]
        if is_sealed(path.name):
            found[stem] = path
        elif live and path.suffix == OPEN_SUFFIX:
            found.setdefault(stem, path)
    return found


def read_segment(path: Path) -> bytes:
    """Return the whole lines of a segment, even if the server has sealed it since `path` was listed.

    Raises OSError, and ValueError if its file is damaged.
    """
    try:
        data = read_file(path)
    except FileNotFoundError:
        codecs = COMPRESSED_SUFFIXES.values() if path.suffix == OPEN_SUFFIX else ()
        sealed = find_file(node_folder_of(path), *(f"{path.stem}{SEALED_SUFFIX}{codec}" for codec in codecs))
        if sealed is None:
            raise
        path, data = sealed, read_file(sealed)
    try:
        lines = decompress(data, path.suffix)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return lines[: lines.rfind(b"\n") + 1]


def require_spool(spool: AnyPath) -> None:
    """Raise LakeError if there is no spool."""
    if not spool.is_dir():
        raise LakeError(f"{spool} {SPOOL_IS_A_FILE}" if spool.exists() else f"there is no spool at {spool}")


def local_spool(pipeline: Pipeline, command: str) -> Path:
    """Return the spool of a command that reads a folder of this machine. Raises LakeError if there is none."""
    spool = spool_of(pipeline)
    if not isinstance(spool, Path):
        raise LakeError(f"{command} reads a folder of this machine, not {spool}")
    require_spool(spool)
    return spool
