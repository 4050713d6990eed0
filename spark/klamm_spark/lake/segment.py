"""`Segment`: a segment of a spool that `ship` reads. Spark's executors import this module too."""

from __future__ import annotations

from typing import NamedTuple

from klamm_spark.spool.compression import LineReader
from klamm_spark.spool.layout import Seal, digests_of, lines_sha256
from klamm_spark.storage.filesystems import path_of, read_file


class Segment(NamedTuple):
    """A segment to ship: the path of its file, or its URI, and its seal."""

    path: str
    seal: Seal


def read_sealed(segment: Segment, reader: LineReader) -> tuple[bytes, str]:
    """Return the lines of a segment, and their digests one after the other.

    Raises OSError, and ValueError if it differs from its seal.
    """
    path, seal = path_of(segment.path), segment.seal
    pieces = list(reader.pieces(read_file(path), path.suffix, seal.size_bytes))
    digests = [digest for piece in pieces for digest in digests_of(piece)]
    size_bytes = sum(map(len, pieces))
    if (size_bytes, len(digests), lines_sha256(digests)) != (seal.size_bytes, seal.events, seal.lines_sha256):
        raise ValueError("it differs from its seal")
    return b"".join(pieces), "".join(digests)
