"""The sealed segments of a spool, read without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from klamm_spark.errors import LakeError
from klamm_spark.settings.spark import Pipeline
from klamm_spark.spool.layout import SEAL_SUFFIX, Seal, beside, parse_name
from klamm_spark.storage.filesystems import SPOOL_IS_A_FILE, AnyPath

SEGMENT_GLOB: Final = "*.{jsonl,jsonl.zst,jsonl.gz}"
"""Matches the sealed segments of a spool, for Spark's option `pathGlobFilter`."""


def spool_of(pipeline: Pipeline) -> str | Path:
    """The location of a pipeline's spool. Raises LakeError if none is configured."""
    if pipeline.spool is None:
        raise LakeError("no spool is configured: give a file that has [audit] spool, or --spool DIR")
    return pipeline.spool


def read_seal(segment: AnyPath) -> Seal | None:
    """The seal of a sealed segment; None if it is missing or cannot be read."""
    if parse_name(segment.name) is None:
        return None
    try:
        return Seal.read(beside(segment, SEAL_SUFFIX))
    except (OSError, ValueError):
        return None


def require_spool(spool: AnyPath) -> None:
    """Raises LakeError if there is no spool."""
    if not spool.is_dir():
        raise LakeError(f"{spool} {SPOOL_IS_A_FILE}" if spool.exists() else f"there is no spool at {spool}")


def local_spool(pipeline: Pipeline, command: str) -> Path:
    """The spool of a command that reads a folder of this machine. Raises LakeError if there is none."""
    spool = spool_of(pipeline)
    if not isinstance(spool, Path):
        raise LakeError(f"{command} reads a folder of this machine, not {spool}")
    require_spool(spool)
    return spool
