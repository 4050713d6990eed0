"""The hash chain of a spool, checked without Spark: what was changed, removed or inserted since it was sealed.

A server may write and retention may delete during the check: retention deletes the oldest segments first, so seals
before the first segment do not break the chain. Nothing shows that events after the newest seal were cut off.
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
"""Each holds a segment, uncompressed."""


@dataclass(slots=True)
class NodeFolder:
    """The state of one folder of a node: of the stream that `mark` stands for, see `stream_mark`.

    `first` is the seal of the oldest segment that exists. `ends` has the newest seal of each boot, `open` the first
    sequence number of each boot's open segment. `gaps` are the `audit_gap` events in open segments, `sealed_gaps` those
    in segments that are what their seals say, and `seqs` the numbers in all sealed ones, see `Numbers`. `breaks`
    describes each break of the chain in a sentence. `signed` are the
    seals with signatures, if these were checked, `signed_by` those of each key whose signatures are right, `unsigned`
    the seals before the first one with a signature.
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
        """Return the number of seals that each key has signed, in words."""
        return ", ".join(f"{count:,} by {key}" for key, count in sorted(self.signed_by.items())) or "none"


class _Digest(NamedTuple):
    """SHA-256 and number of a segment's lines, uncompressed. If they cannot be decompressed, those of no bytes."""

    sha256: str
    events: int
    seqs: list[tuple[str, str, int, int]]
    gaps: list[dict[str, Any]]


class _Read(NamedTuple):
    """The files of one segment: its seal if it can be read, and a digest of each that still exists."""

    stem: str
    seal: Seal | None
    digests: list[tuple[AnyPath, _Digest]]


def line_readers() -> list[LineReader]:
    """Return readers for `read_folder`: their memory serves one folder after the other."""
    return [LineReader() for _ in range(_THREADS)]


def read_folder(folder: AnyPath, keys: PublicKeys | None = None, readers: list[LineReader] | None = None) -> NodeFolder:
    """Read and check every segment of one node; for `keys` see `SealChain`. It takes about a second per gigabyte."""
    node, _, stream = folder.name.partition(NODE_END)
    found = NodeFolder(node, STREAMS.get(stream or REQUESTS, ""))
    # Seals first, then open and sealed segments: a segment that is sealed meanwhile is found in one of them.
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

    # Each thread takes one, and gives it back.
    free = line_readers() if readers is None else readers

    def read(stem: str) -> _Read:
        # One; others were put beside it.
        there = segments.get(stem, [])
        try:
            # A seal may have come after the listing, with its segment.
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
            # Who can write to the spool can put any file there.
            found.sealed_gaps += () if changes else digest.gaps
        if not digests and found.first is not None:
            found.breaks.append(f"{folder / stem} was removed: only its seal exists")
        chain.add(str(folder / stem), stem, seal)
    chain.end()
    return found


def _ahead(read: Callable[[str], _Read], stems: Iterable[str]) -> Iterator[_Read]:
    """Yield the results in order, while a few threads read ahead."""
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
        # Each piece is still in the processor's cache when its numbers are read.
        for piece in reader.pieces(read_file(segment), segment.suffix, size_bytes):
            found.update(piece)
            numbers = numbers_of(piece)
            seqs += numbers.seqs
            gaps += numbers.gaps
            events += numbers.lines
    except FileNotFoundError:
        return None
    except (ValueError, UnfitFileError):
        # It has no piece then.
        pass
    return _Digest(found.hexdigest(), events, seqs, gaps)


class SealChain:
    """Checks the seals of a stream, oldest first, and adds to its NodeFolder what they say. `end` it.

    With `keys`, every seal from the first that is signed on must have a signature of one of them; if none is signed,
    all must be, unless `keys` are none, too.
    """

    def __init__(self, found: NodeFolder, keys: PublicKeys | None) -> None:
        self._found = found
        self._keys = keys
        self._previous: Seal | None = None
        self._unsigned: list[str] = []

    def add(self, name: str, stem: str, seal: Seal) -> None:
        """Check the next seal, that of the segment `stem`; messages call it `name`."""
        found = self._found
        found.node = seal.node
        found.ends[seal.boot] = seal
        found.breaks += (f"{name}: {flaw}" for flaw in _flaws(seal, stem, self._previous))
        flaw = self._keys.problem(seal) if self._keys is not None else None
        if seal.signature and self._keys is not None:
            # Those before it are older than the key, or seem so, and this one's signature covers their chain.
            found.unsigned += len(self._unsigned)
            self._unsigned.clear()
            found.signed += 1
            found.signed_by[seal.key_id] += flaw is None
        if flaw is not None:
            (found.breaks if found.signed else self._unsigned).append(f"{name}: {flaw}")
        self._previous = seal

    def end(self) -> None:
        """Add what only the end of the chain shows."""
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
        # The chain is computed from their digits, one after the other: each must be where it belongs.
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
    """Return the whole lines of a segment that is being written.

    If there are none, its boot has not reported the one before it.
    """
    try:
        data = read_file(path)
    except (FileNotFoundError, UnfitFileError):
        return b""
    return data[: data.rfind(b"\n") + 1]


def _comes_late(folder: AnyPath, stem: str) -> bool:
    """Return True for a segment that was being sealed when sealed ones were listed: its seal comes first."""
    # In this order: it is open until it is sealed.
    names = (f"{stem}{SEALED_SUFFIX}{suffix}" for suffix in COMPRESSED_SUFFIXES.values())
    return (folder / f"{stem}{OPEN_SUFFIX}").exists() or find_file(folder, *names) is not None
