"""`read_folder`: checks the hash chain of a spool, without Spark. It finds what was changed, removed or inserted.

A server may write and retention may delete during the check. Retention deletes the oldest segments first, so missing
segments before the first one do not break the chain. The chain cannot show if events after the newest seal were cut
off. `verify` calls it, for one folder after the other.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from klamm_spark.spool.compression import LineReader
from klamm_spark.spool.layout import (
    COMPRESSED_SUFFIXES,
    NO_CHAIN,
    NODE_END,
    OPEN_SUFFIX,
    REQUESTS,
    SEAL_SUFFIX,
    SEALED_SUFFIX,
    STREAMS,
    Seal,
    chain_of,
    find_file,
    open_segments,
    parse_name,
    sealed_segments,
    segment_files,
)
from klamm_spark.spool.numbers import gaps_in, numbers_of
from klamm_spark.spool.signatures import PublicKeys
from klamm_spark.storage.filesystems import AnyPath, UnfitFileError, read_file

_SHA256: Final = len(NO_CHAIN)
_THREADS: Final = min(8, os.cpu_count() or 1)
"""The number of threads. Each holds an uncompressed segment in memory."""


@dataclass(slots=True)
class NodeFolder:
    """The state of a node's folder, i.e. of one stream; `mark` is the stream's `stream_mark`.

    `first` is the seal of the oldest existing segment. `ends` has the newest seal of each boot, and `open` the first
    number of each boot's open segment. `gaps` are the `audit_gap` events in open segments, and `sealed_gaps` those in
    segments that fit their seals. `seqs` are the numbers in all sealed segments, see `Numbers`. `breaks` has a sentence
    for each break of the chain.

    If signatures were checked, `signed` is the number of seals with a signature, `signed_by` the number of right
    signatures by key, and `unsigned` the number of seals before the first one with a signature.
    """

    node: str
    mark: str
    first: Seal | None = None
    ends: dict[str, Seal] = field(default_factory=dict)
    open: dict[str, int] = field(default_factory=dict)
    gaps: list[dict[str, Any]] = field(default_factory=list)
    sealed_gaps: list[dict[str, Any]] = field(default_factory=list)
    seqs: list[tuple[str, str, int, int]] = field(default_factory=list)
    breaks: list[str] = field(default_factory=list)
    signed: int = 0
    signed_by: Counter[str] = field(default_factory=Counter)
    unsigned: int = 0

    def signers(self) -> str:
        """Return a text with the number of seals that each key has signed."""
        return ", ".join(f"{count:,} by {key}" for key, count in sorted(self.signed_by.items())) or "none"


class _Digest(NamedTuple):
    """The SHA-256 and the content of a segment's lines. If they cannot be decompressed, it is that of no bytes."""

    sha256: str
    events: int
    seqs: list[tuple[str, str, int, int]]
    gaps: list[dict[str, Any]]


class _Read(NamedTuple):
    """The files of one segment: its seal, if it can be read, and a digest of each file that still exists."""

    stem: str
    seal: Seal | None
    digests: list[tuple[AnyPath, _Digest]]


def line_readers() -> list[LineReader]:
    """Return readers for `read_folder`, which may be used for one folder after the other to save memory."""
    return [LineReader() for _ in range(_THREADS)]


def read_folder(folder: AnyPath, keys: PublicKeys | None = None, readers: list[LineReader] | None = None) -> NodeFolder:
    """Read and check every segment of a folder. For `keys` see `SealChain`. It takes about a second per gigabyte."""
    node, _, stream = folder.name.partition(NODE_END)
    found = NodeFolder(node, STREAMS.get(stream or REQUESTS, ""))
    # List seals first, then open segments, then sealed ones, so that a segment that is sealed meanwhile is found.
    seals = {path.stem: path for path in segment_files(folder, SEAL_SUFFIX) if parse_name(path.name)}
    for path in open_segments(folder):
        name = parse_name(path.name)
        if name is not None:
            lines = _lines_of(path)
            if lines:
                found.open[name.boot] = max(name.first_seq, found.open.get(name.boot, 0))
                found.gaps += gaps_in(lines)
    segments: dict[str, list[AnyPath]] = defaultdict(list)
    for path in sealed_segments(folder):
        segments[path.name.partition(".")[0]].append(path)

    # Each thread takes a reader from the list, and gives it back.
    free = line_readers() if readers is None else readers

    def read(stem: str) -> _Read:
        # Usually one file. More of them were added by others.
        there = segments.get(stem, [])
        try:
            # The seal may have been written after the seals were listed.
            seal = Seal.read(seals.get(stem) or there[0].with_name(f"{stem}{SEAL_SUFFIX}"))
        except (OSError, ValueError):
            return _Read(stem, None, [])
        reader = free.pop()
        digests = [(segment, _digest_of(segment, seal.size_bytes, reader)) for segment in there]
        free.append(reader)
        return _Read(stem, seal, [(segment, digest) for segment, digest in digests if digest is not None])

    chain = SealChain(found, keys)
    for stem, seal, digests in _ahead(read, sorted(seals.keys() | segments.keys())):
        there = segments.get(stem, [])
        if not there and _comes_late(folder, stem):
            continue
        if seal is None:
            found.breaks += (
                f"{segment} was inserted, or its seal was removed: no seal can be read"
                for segment in there
                if segment.exists()
            )
            continue
        for segment, digest in digests:
            found.seqs += digest.seqs
            found.first = found.first or seal
            changes = [f"{segment} was changed: {change}" for change in _changes(digest, seal)]
            found.breaks += changes
            # Only from unchanged segments: an attacker can put any file into the spool.
            found.sealed_gaps += () if changes else digest.gaps
        if not digests and found.first is not None:
            found.breaks.append(f"{folder / stem} was removed: only its seal exists")
        chain.add(str(folder / stem), stem, seal)
    chain.end()
    return found


def _ahead(read: Callable[[str], _Read], stems: Iterable[str]) -> Iterator[_Read]:
    """Yield the results in order. A few threads read ahead."""
    waiting = deque[Future[_Read]]()
    with ThreadPoolExecutor(_THREADS) as pool:
        for stem in stems:
            waiting.append(pool.submit(read, stem))
            if len(waiting) > _THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _digest_of(segment: AnyPath, size_bytes: int, reader: LineReader) -> _Digest | None:
    found, seqs, gaps, events = hashlib.sha256(), list[tuple[str, str, int, int]](), list[dict[str, Any]](), 0
    try:
        # In pieces, so that a piece is still in the processor's cache when its numbers are read.
        for piece in reader.pieces(read_file(segment), segment.suffix, size_bytes):
            found.update(piece)
            numbers = numbers_of(piece)
            seqs += numbers.seqs
            gaps += numbers.gaps
            events += numbers.lines
    except FileNotFoundError:
        return None
    except (ValueError, UnfitFileError):
        # The segment cannot be decompressed, so there was no piece.
        pass
    return _Digest(found.hexdigest(), events, seqs, gaps)


class SealChain:
    """A check of a stream's seals, the oldest first, which adds its results to a NodeFolder. The caller must call
    `end`.

    With `keys`, every seal from the first signed one on must have a signature of one of them. If no seal is signed, all
    of them must be, unless there are no keys either.
    """

    def __init__(self, found: NodeFolder, keys: PublicKeys | None) -> None:
        self._found = found
        self._keys = keys
        self._previous: Seal | None = None
        self._unsigned: list[str] = []

    def add(self, name: str, stem: str, seal: Seal) -> None:
        """Check the next seal, which belongs to the segment `stem`. `name` is its name in messages."""
        found = self._found
        found.node = seal.node
        found.ends[seal.boot] = seal
        found.breaks += (f"{name}: {flaw}" for flaw in _flaws(seal, stem, self._previous))
        flaw = self._keys.problem(seal) if self._keys is not None else None
        if seal.signature and self._keys is not None:
            # Earlier seals without a signature seem older than the key, and this signature covers their chain.
            found.unsigned += len(self._unsigned)
            self._unsigned.clear()
            found.signed += 1
            found.signed_by[seal.key_id] += flaw is None
        if flaw is not None:
            (found.breaks if found.signed else self._unsigned).append(f"{name}: {flaw}")
        self._previous = seal

    def end(self) -> None:
        """Add the breaks that only show at the end of the chain."""
        self._found.breaks += self._unsigned
        self._unsigned = []


def _changes(digest: _Digest, seal: Seal) -> Iterator[str]:
    if digest.sha256 != seal.sha256:
        yield "its SHA-256 differs from its seal"
    if digest.events != seal.events:
        yield f"it has {digest.events:,} events, its seal says {seal.events:,}"


def _flaws(seal: Seal, stem: str, previous: Seal | None) -> Iterator[str]:
    if seal.segment != stem or stem != f"{seal.boot}-{seal.first_seq:020d}":
        yield f"its seal is that of {seal.segment}"
    if any(len(each) != _SHA256 for each in (seal.previous_chain, seal.sha256, seal.lines_sha256)):
        # The chain's hash is made of their digits without separators, so each must have its full length.
        yield "its seal was changed: a value is no SHA-256"
    if seal.chain != chain_of(seal.previous_chain, seal.sha256, seal.lines_sha256):
        yield "its seal was changed: the chain does not match its SHA-256"
    if previous is None:
        if seal.index == 0 and seal.previous_chain != NO_CHAIN:
            yield "its seal says that it is the first, but its chain continues another"
        return
    missing = seal.index - previous.index - 1
    if missing > 0:
        yield f"{missing:,} segments between it and {previous.segment} were removed"
    elif missing < 0:
        yield f"it or {previous.segment} was inserted: they have the indexes {seal.index} and {previous.index}"
    elif seal.previous_chain != previous.chain:
        yield f"its chain does not continue {previous.segment}: one of them was replaced"


def _lines_of(path: AnyPath) -> bytes:
    """Return the complete lines of an open segment.

    If it has none yet, its boot has not reported the end of the boot before it.
    """
    try:
        data = read_file(path)
    except (FileNotFoundError, UnfitFileError):
        return b""
    return data[: data.rfind(b"\n") + 1]


def _comes_late(folder: AnyPath, stem: str) -> bool:
    """Return True if a segment was being sealed while sealed segments were listed: its seal is written first."""
    # Check in this order, because the segment is open until it is sealed.
    names = (f"{stem}{SEALED_SUFFIX}{suffix}" for suffix in COMPRESSED_SUFFIXES.values())
    return (folder / f"{stem}{OPEN_SUFFIX}").exists() or find_file(folder, *names) is not None
