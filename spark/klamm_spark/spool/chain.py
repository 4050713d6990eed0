"""`read_folder`: checks the hash chain of a spool, without Spark. It finds changed, removed and inserted segments.

A server may write and retention may delete during the check. Retention deletes the oldest segments first, so missing
segments before the first one do not break the chain. The chain cannot show if events after the newest seal were cut
off. `verify` calls it, for one folder after the other.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

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
from klamm_spark.spool.numbers import MOST_HOURS, Numbers, gaps_in, hours_of, numbers_of
from klamm_spark.spool.signatures import PublicKeys
from klamm_spark.storage.filesystems import AnyPath, UnfitFileError, read_file

T = TypeVar("T")
R = TypeVar("R")
_SHA256: Final = len(NO_CHAIN)
_THREADS: Final = min(8, os.cpu_count() or 1)
"""The number of threads. Each holds an uncompressed segment in memory."""


@dataclass(slots=True)
class NodeFolder:
    """The state of a node's folder, i.e. of one stream; `mark` is the stream's `stream_mark`.

    `first` is the seal of the oldest segment that exists. `ends` has the newest seal of each boot, `open` the first
    sequence number of each boot's open segment. `gaps` are the `audit_gap` events in open segments, `sealed_gaps` those
    in segments that are what their seals say, and `seqs` the numbers in all sealed ones, see `Numbers`. Both lack those
    of the `unread` segments, which are elsewhere, too. `breaks` describes each break of the chain in a sentence.
    `signed` are the seals with signatures, if these were checked, `signed_by` those of each key whose signatures are
    right, `unsigned` the seals before the first one with a signature.
    """

    node: str
    mark: str
    first: Seal | None = None
    ends: dict[str, Seal] = field(default_factory=dict)
    open: dict[str, int] = field(default_factory=dict)
    gaps: list[dict[str, Any]] = field(default_factory=list)
    sealed_gaps: list[dict[str, Any]] = field(default_factory=list)
    seqs: list[tuple[str, str, int, int]] = field(default_factory=list)
    unread: list[tuple[AnyPath, Seal]] = field(default_factory=list)
    breaks: list[str] = field(default_factory=list)
    signed: int = 0
    signed_by: Counter[str] = field(default_factory=Counter)
    unsigned: int = 0

    def signers(self) -> str:
        """Return a text with the number of seals that each key has signed."""
        return ", ".join(f"{count:,} by {key}" for key, count in sorted(self.signed_by.items())) or "none"


class _Digest(NamedTuple):
    """SHA-256 and number of a segment's lines, uncompressed. If they cannot be decompressed, those of no bytes. Without
    `numbers`, its bytes are what its seal says, and nothing else was looked at."""

    sha256: str
    events: int
    numbers: Numbers | None
    hours: int = 0


class _Read(NamedTuple):
    """The files of one segment: its seal, if it can be read, and a digest of each file that still exists."""

    stem: str
    seal: Seal | None
    digests: list[tuple[AnyPath, _Digest]]


def read_folder(folder: AnyPath, keys: PublicKeys | None = None) -> NodeFolder:
    """Read and check every segment of one node, see `read_folders`."""
    return read_folders([(folder, keys)])[0]


def read_folders(
    folders: Iterable[tuple[AnyPath, PublicKeys | None]], elsewhere: Mapping[str, Seal] = MappingProxyType({})
) -> list[NodeFolder]:
    """Read and check every segment of nodes, each folder with its keys, see `SealChain`.

    If a segment is also `elsewhere` with the same seal, only its bytes are checked, and `NodeFolder.unread` has the
    segment.
    """
    found = list[_Folder]()
    # Each thread takes one, and gives it back.
    free = [LineReader() for _ in range(_THREADS)]

    def stems() -> Iterator[tuple[_Folder, str]]:
        for folder, keys in folders:
            found.append(_Folder(folder, keys))
            yield from ((found[-1], stem) for stem in found[-1].stems())

    def read(which: tuple[_Folder, str]) -> tuple[_Folder, _Read]:
        folder, stem = which
        reader = free.pop()
        try:
            return folder, folder.read(stem, reader, elsewhere.get(stem))
        finally:
            free.append(reader)

    for folder, segment in _ahead(read, stems()):
        folder.add(segment)
    return [folder.end() for folder in found]


class _Folder:
    """A node's folder while it is read."""

    def __init__(self, folder: AnyPath, keys: PublicKeys | None) -> None:
        node, _, stream = folder.name.partition(NODE_END)
        self._folder = folder
        self._found = found = NodeFolder(node, STREAMS.get(stream or REQUESTS, ""))
        self._chain = SealChain(found, keys)
        # Seals first, then open and sealed segments: a segment that is sealed meanwhile is found in one of them.
        self._seals = {path.stem: path for path in segment_files(folder, SEAL_SUFFIX) if parse_name(path.name)}
        for path in open_segments(folder):
            name = parse_name(path.name)
            if name is not None:
                lines = _lines_of(path)
                if lines:
                    found.open[name.boot] = max(name.first_seq, found.open.get(name.boot, 0))
                    found.gaps += gaps_in(lines)
        self._segments: dict[str, list[AnyPath]] = defaultdict(list)
        for path in sealed_segments(folder):
            self._segments[path.name.partition(".")[0]].append(path)

    def stems(self) -> list[str]:
        """Return the names of all segments, oldest first."""
        return sorted(self._seals.keys() | self._segments.keys())

    def read(self, stem: str, reader: LineReader, elsewhere: Seal | None) -> _Read:
        """Read the files of a segment, on any thread."""
        # One file, unless others were added.
        there = self._segments.get(stem, [])
        try:
            # A seal may have come after the listing, with its segment.
            seal = Seal.read(self._seals.get(stem) or there[0].with_name(f"{stem}{SEAL_SUFFIX}"))
        except (OSError, ValueError):
            return _Read(stem, None, [])
        is_known = elsewhere is not None and seal.without_end() == elsewhere.without_end()
        read = _bytes_of if is_known and seal.last_seq - seal.first_seq + 1 == seal.events else _digest_of
        digests = [(segment, read(segment, seal, reader)) for segment in there]
        return _Read(stem, seal, [(segment, digest) for segment, digest in digests if digest is not None])

    def add(self, segment: _Read) -> None:
        """Check the next segment."""
        found, (stem, seal, digests) = self._found, segment
        there = self._segments.get(stem, [])
        if not there and _comes_late(self._folder, stem):
            return
        if seal is None:
            found.breaks += (
                f"{path} was inserted, or its seal was removed: no seal can be read" for path in there if path.exists()
            )
            return
        for path, digest in digests:
            found.first = found.first or seal
            changes = [f"{path} was changed: {change}" for change in _changes(digest, seal)]
            found.breaks += changes
            if digest.hours > MOST_HOURS and not changes:
                found.breaks.append(f"{path} has events of {digest.hours:,} hours: ship sets it aside")
            if digest.numbers is None:
                found.unread.append((path, seal))
                continue
            found.seqs += digest.numbers.seqs
            # Who can write to the spool can put any file there.
            found.sealed_gaps += () if changes else digest.numbers.gaps
        if not digests and found.first is not None:
            found.breaks.append(f"{self._folder / stem} was removed: only its seal exists")
        self._chain.add(str(self._folder / stem), stem, seal)

    def end(self) -> NodeFolder:
        """Return what was found."""
        self._chain.end()
        return self._found


def _ahead(read: Callable[[T], R], parts: Iterable[T]) -> Iterator[R]:
    """Yield the results in order, while a few threads read ahead."""
    waiting = deque[Future[R]]()
    with ThreadPoolExecutor(_THREADS) as pool:
        for part in parts:
            waiting.append(pool.submit(read, part))
            if len(waiting) > _THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _bytes_of(segment: AnyPath, seal: Seal, reader: LineReader) -> _Digest | None:
    """Return a segment's digest without its numbers if its bytes fit the seal, else the result of `_digest_of`."""
    try:
        content = reader.content(read_file(segment), segment.suffix, seal.size_bytes)
        if hashlib.sha256(content).hexdigest() == seal.sha256:
            return _Digest(seal.sha256, seal.events, None)
    except (OSError, ValueError):
        # `_digest_of` finds the fault.
        pass
    return _digest_of(segment, seal, reader)


def _digest_of(segment: AnyPath, seal: Seal, reader: LineReader) -> _Digest | None:
    """Return the digest and the numbers of a file; None if the file is gone. Raises OSError."""
    found, seqs, gaps, lines = hashlib.sha256(), list[tuple[str, str, int, int]](), list[dict[str, Any]](), 0
    hours = set[int]()
    try:
        # Each piece is still in the processor's cache when its numbers are read.
        for piece in reader.pieces(read_file(segment), segment.suffix, seal.size_bytes):
            found.update(piece)
            numbers = numbers_of(piece)
            hours |= hours_of(piece)
            seqs += numbers.seqs
            gaps += numbers.gaps
            lines += numbers.lines
    except FileNotFoundError:
        return None
    except (ValueError, UnfitFileError):
        # The segment cannot be decompressed, so there was no piece.
        pass
    return _Digest(found.hexdigest(), lines, Numbers(seqs, gaps, lines), len(hours))


def read_numbers(which: tuple[AnyPath, Seal]) -> Numbers:
    """Return the numbers of a segment of `NodeFolder.unread`; if it has gone since, those that its seal says. Raises
    OSError."""
    segment, seal = which
    digest = _digest_of(segment, seal, LineReader())
    if digest is None or digest.numbers is None or digest.sha256 != seal.sha256:
        return Numbers([(seal.node, seal.boot, seal.first_seq, seal.last_seq)], [], seal.events)
    return digest.numbers


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
