"""The sealed segments of a spool, read without Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klamm_spark.filesystems import AnyPath
from klamm_spark.lake import LakeError
from klamm_spark.spark_settings import Pipeline
from klamm_spark.spool_layout import SEAL_SUFFIX, Seal, node_folders, parse_name, sealed_segments

SEGMENT_GLOB: Final = "*.{jsonl,jsonl.zst,jsonl.gz}"
"""Matches the sealed segments of a spool, for Spark's option `pathGlobFilter`."""


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """One sealed segment. `seal` is None if the seal is missing, cannot be read or is not needed."""

    path: AnyPath
    size_bytes: int
    seal: Seal | None


def spool_of(pipeline: Pipeline) -> str | Path:
    """The location of a pipeline's spool. Raises LakeError if none is configured."""
    if pipeline.spool is None:
        raise LakeError("no spool is configured: give a file that has [audit] spool, or --spool DIR")
    return pipeline.spool


def segments(spool: AnyPath, without: Collection[str] = (), *, seals: bool = True) -> Iterator[SealedSegment]:
    """The sealed segments of all nodes except those with the names `without`.

    Segments that retention deletes meanwhile are skipped.
    """
    for folder in node_folders(spool):
        for path in sealed_segments(folder):
            if path.name in without:
                continue
            try:
                size_bytes = path.stat().st_size
            except FileNotFoundError:
                continue
            yield SealedSegment(path, size_bytes, read_seal(path) if seals else None)


def read_seal(segment: AnyPath) -> Seal | None:
    """The seal of a sealed segment; None if it is missing or cannot be read."""
    name = parse_name(segment.name)
    if name is None:
        return None
    try:
        return Seal.read(segment.with_name(name.stem + SEAL_SUFFIX))
    except (OSError, ValueError):
        return None


def require_spool(spool: AnyPath) -> None:
    """Raises LakeError if there is no spool."""
    if not spool.is_dir():
        raise LakeError(f"there is no spool at {spool}")
