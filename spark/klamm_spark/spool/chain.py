"""The hash chain of a spool, checked without Spark: what was changed, removed or inserted since it was sealed.

A server may write and retention may delete during the check: retention deletes the oldest segments first, so seals
before the first segment do not break the chain. Nothing shows that events after the newest seal were cut off.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from klamm_spark.spool.compression import decompress
from klamm_spark.spool.layout import (
    NO_CHAIN,
    NODE_END,
    OPEN_SUFFIX,
    REQUESTS,
    SEAL_SUFFIX,
    STREAMS,
    Seal,
    chain_of,
    open_segments,
    parse_name,
    sealed_segments,
    segment_files,
)
from klamm_spark.spool.numbers import Numbers, gaps_in, numbers_of
from klamm_spark.spool.signatures import PublicKeys
from klamm_spark.storage.filesystems import AnyPath

_SHA256: Final = len(NO_CHAIN)
_MOST_THREADS: Final = 8
"""Each holds a segment, uncompressed."""


@dataclass(slots=True)
class NodeFolder:
    """The state of one folder of a node: of the stream that `mark` stands for, see `stream_mark`.

    `first` is the seal of the oldest segment that exists. `ends` has the newest seal of each boot, `open` the first
    sequence number of each boot's open segment. `gaps` are the `audit_gap` events in open segments. `numbers` are those
    of sealed segments by the names of their files, if they are known without parsing. `sealed` are the files of
    segments that are what their seals say. `breaks` describes each break of the chain in a sentence. `signed` are the
    seals with signatures, if these were checked, `signed_by` those of each key whose signatures are right, `unsigned`
    the seals before the first one with a signature.
    """

    node: str
    mark: str
    first: Seal | None = None
    ends: dict[str, Seal] = field(default_factory=dict)
    open: dict[str, int] = field(default_factory=dict)
    gaps: list[dict[str, Any]] = field(default_factory=list)
    numbers: dict[str, Numbers] = field(default_factory=dict)
    sealed: set[AnyPath] = field(default_factory=set)
    breaks: list[str] = field(default_factory=list)
    signed: int = 0
    signed_by: Counter[str] = field(default_factory=Counter)
    unsigned: int = 0

    def signers(self) -> str:
        """How many seals each key has signed, in words."""
        return ", ".join(f"{count:,} by {key}" for key, count in sorted(self.signed_by.items())) or "none"


class Digest(NamedTuple):
    """SHA-256 and number of a segment's lines, uncompressed. If they cannot be decompressed, those of no bytes.

    `numbers` are None if they are not known.
    """

    sha256: str
    events: int
    numbers: Numbers | None = None


class SpoolContent(Protocol):
    """Reads the seals and segments of a folder."""

    def seals(self, folder: AnyPath) -> Sequence[AnyPath]:
        """The files of the seals."""

    def seal(self, path: AnyPath) -> Seal:
        """One seal. Raises OSError, ValueError."""

    def begin(self, folder: AnyPath, segments: Iterable[AnyPath]) -> None:
        """Prepare to compute the digests of these segments of a folder. They are asked for in this order."""

    def digest(self, segment: AnyPath) -> Digest | None:
        """The digest of a segment; None if retention has deleted it."""


class FileContent:
    """Reads a few files at once, ahead of those that are asked for. `close` it."""

    def __init__(self) -> None:
        self._threads = min(_MOST_THREADS, os.cpu_count() or 1)
        self._pool = ThreadPoolExecutor(self._threads)
        self._waiting: deque[AnyPath] = deque()
        self._ahead: dict[AnyPath, Future[Digest | None]] = {}

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(cancel_futures=True)

    def seals(self, folder: AnyPath) -> Sequence[AnyPath]:
        return segment_files(folder, SEAL_SUFFIX)

    def seal(self, path: AnyPath) -> Seal:
        return Seal.read(path)

    def begin(self, folder: AnyPath, segments: Iterable[AnyPath]) -> None:
        self._waiting, self._ahead = deque(segments), {}

    def digest(self, segment: AnyPath) -> Digest | None:
        # Not all are asked for: those without a seal are not.
        self._ahead = {path: digest for path, digest in self._ahead.items() if path.name >= segment.name}
        while self._waiting and self._waiting[0].name < segment.name:
            self._waiting.popleft()
        while self._waiting and len(self._ahead) <= self._threads:
            path = self._waiting.popleft()
            self._ahead[path] = self._pool.submit(_digest_of_file, path)
        ahead = self._ahead.pop(segment, None)
        return ahead.result() if ahead is not None else _digest_of_file(segment)


def _digest_of_file(segment: AnyPath) -> Digest | None:
    try:
        data = segment.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return digest_of(decompress(data, segment.suffix))
    except ValueError:
        return digest_of(b"")


def digest_of(data: bytes) -> Digest:
    """The digest of a segment's lines."""
    return Digest(hashlib.sha256(data).hexdigest(), data.count(b"\n"), numbers_of(data))


def read_folder(folder: AnyPath, content: SpoolContent | None = None, keys: PublicKeys | None = None) -> NodeFolder:
    """Read and check every segment of one node; for `keys` see `SealChain`. From files, it takes about a second per
    gigabyte."""
    if content is None:
        with closing(FileContent()) as files:
            return read_folder(folder, files, keys)
    node, _, stream = folder.name.partition(NODE_END)
    found = NodeFolder(node, STREAMS.get(stream or REQUESTS, ""))
    # Seals first, then open and sealed segments: a segment that is sealed meanwhile is found in one of them.
    seals = {path.stem: path for path in content.seals(folder)}
    for path in open_segments(folder):
        name = parse_name(path.name)
        if name is not None:
            found.open[name.boot] = max(name.first_seq, found.open.get(name.boot, 0))
            found.gaps += _gaps_of(path)
    segments: dict[str, list[AnyPath]] = defaultdict(list)
    for path in (paths := sealed_segments(folder)):
        segments[path.name.partition(".")[0]].append(path)
    if paths:
        content.begin(folder, paths)
    chain = SealChain(found, keys)
    for stem in sorted(seals.keys() | segments.keys()):
        # One; others were put beside it.
        there = segments.get(stem, [])
        if not there and (folder / f"{stem}{OPEN_SUFFIX}").exists():
            continue
        try:
            # A seal may have come after the listing, with its segment.
            seal = content.seal(seals.get(stem) or there[0].with_name(f"{stem}{SEAL_SUFFIX}"))
        except (OSError, ValueError):
            found.breaks += (
                f"{segment} was inserted, or its seal was removed: no seal can be read"
                for segment in there
                if segment.exists()
            )
            continue
        digests = [(segment, digest) for segment in there if (digest := content.digest(segment)) is not None]
        for segment, digest in digests:
            if digest.numbers is not None:
                found.numbers[segment.name] = digest.numbers
            found.first = found.first or seal
            changes = [f"{segment} was changed: {change}" for change in _changes(digest, seal)]
            found.breaks += changes
            if not changes:
                found.sealed.add(segment)
        if not digests and found.first is not None:
            found.breaks.append(f"{folder / stem} was removed: only its seal exists")
        chain.add(str(folder / stem), stem, seal)
    chain.end()
    return found


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
        """The next seal, of the segment `stem`; messages call it `name`."""
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


def _changes(digest: Digest, seal: Seal) -> Iterator[str]:
    if digest.sha256 != seal.sha256:
        yield "its SHA-256 differs from its seal"
    if digest.events != seal.events:
        yield f"it has {digest.events:,} events, its seal says {seal.events:,}"


def _flaws(seal: Seal, stem: str, previous: Seal | None) -> Iterator[str]:
    if seal.segment != stem or stem != f"{seal.boot}-{seal.first_seq:020d}":
        yield f"its seal is that of {seal.segment}"
    if len(seal.previous_chain) != _SHA256 or len(seal.sha256) != _SHA256 or len(seal.lines_sha256) not in (0, _SHA256):
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


def _gaps_of(path: AnyPath) -> list[dict[str, Any]]:
    """The `audit_gap` events in a segment that is being written."""
    try:
        return gaps_in(path.read_bytes())
    except FileNotFoundError:
        return []
