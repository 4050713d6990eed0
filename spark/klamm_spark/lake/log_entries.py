"""The entries of the log, one for each segment, and the proof that an event is in the log.

An entry is one line. It has the segment, its last number and its number of lines, the root of the lines' tree, and the
SHA-256 of the segment's seal with its signature, as in the ledger. A leaf of the lines' tree is the hash of the digests
of eight lines. A node is the hash of its children after the byte 1. All these hashes are cut to 16 bytes, like the
digests.

A proof has the format `tlog-proof` of C2SP, version 1. Its field `extra` has the entry, the position of the line in its
segment, the digests of its eight lines, and the inclusion proof in the lines' tree. To check it, neither a network nor
klamm's files are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from klamm_spark.spool.layout import SegmentName, line_digest, parse_name
from klamm_spark.tlog.merkle import MOST_HASHES, ProofError, Tree, leaf_hash, node_hash, path_root, root_of, tree_of
from klamm_spark.tlog.notes import Checkpoint, NoteKey, decode_base64, encode_base64, parse_number

NO_LINES: Final = "-"
"""The root of an entry if the ledger has no digests of the segment's lines."""
_TAG: Final = "klamm-seal/v1"
_DIGEST_BYTES: Final = 16
_GROUP: Final = 8
_HEAD: Final = "c2sp.org/tlog-proof@v1"
_MAX_PROOF_BYTES: Final = 1 << 18


class Entry(NamedTuple):
    """An entry of the log."""

    node: str
    segment: str
    last_seq: int
    events: int
    lines_root: str
    seal_sha256: str

    def to_bytes(self) -> bytes:
        """Return the bytes that the log hashes."""
        return " ".join((_TAG, *map(str, self))).encode()

    @staticmethod
    def parse(data: bytes) -> Entry:
        """Read an entry. Raises ValueError."""
        parts = data.decode("ascii").split(" ")
        if len(parts) != 1 + len(Entry._fields) or parts[0] != _TAG or parse_name(parts[2]) is None:
            raise ValueError("it is no entry of a seal")
        return Entry(parts[1], parts[2], parse_number(parts[3]), parse_number(parts[4]), parts[5], parts[6])

    @property
    def boot_and_first(self) -> SegmentName:
        """Return the boot, and the number of the segment's first event."""
        return parse_name(self.segment) or SegmentName(self.segment, 0)

    def __str__(self) -> str:
        return f"{self.segment} of {self.node} (events {self.boot_and_first.first_seq} to {self.last_seq})"


def _short_node(left: bytes, right: bytes) -> bytes:
    return node_hash(left, right)[:_DIGEST_BYTES]


def _groups(digests: str) -> list[bytes]:
    data, size = bytes.fromhex(digests), _GROUP * _DIGEST_BYTES
    return [data[at : at + size] for at in range(0, len(data), size)]


def _short_leaf(group: bytes) -> bytes:
    return leaf_hash(group)[:_DIGEST_BYTES]


def lines_root(digests: str) -> str:
    """Return the root of the lines' tree. `digests` has the digests of the lines one after the other."""
    return root_of(list(map(_short_leaf, _groups(digests))), _short_node).hex() if digests else NO_LINES


def event_proof(entry: Entry, at: int, digests: str, log: Tree, index: int, checkpoint: Checkpoint) -> str:
    """Return the proof that line `at` of a segment is in the log. `entry` is the segment's entry, at `index` in the
    log.
    """
    groups = _groups(digests)
    path = tree_of(list(map(_short_leaf, groups)), _short_node).inclusion(at // _GROUP, len(groups))
    extra = b"\n".join((entry.to_bytes(), str(at).encode(), groups[at // _GROUP] + b"".join(path)))
    hashes = [encode_base64(each) for each in log.inclusion(index, checkpoint.size)]
    return "\n".join((_HEAD, f"extra {encode_base64(extra)}", f"index {index}", *hashes, "", str(checkpoint)))


class Proven(NamedTuple):
    """An event that a proof shows to be in the log of `checkpoint`.

    All keys have signed the checkpoint. `times_s` has the times at which witnesses did so, in seconds since 1970.
    """

    entry: Entry
    checkpoint: Checkpoint
    times_s: list[int]


def check_event(line: bytes, proof: bytes, keys: Sequence[NoteKey]) -> Proven:
    """Check the proof that an event's line, without its newline, is in a log whose checkpoint all keys have signed.

    Raises ProofError; ValueError if a text cannot be read.
    """
    head, _, note = proof[:_MAX_PROOF_BYTES].partition(b"\n\n")
    try:
        first, extra, index, *hashes = head.decode("ascii").split("\n")
        said, at, rest = decode_base64(extra.removeprefix("extra ")).split(b"\n", 2)
    except ValueError as error:
        raise ValueError("it is no proof of an event") from error
    if first != _HEAD or not index.startswith("index ") or not keys:
        raise ValueError("it is no proof of an event, or there is no key to check it by")
    entry, checkpoint = Entry.parse(said), Checkpoint.parse(note)
    path = [decode_base64(each) for each in hashes[: MOST_HASHES + 1]]
    _check_line(line, entry, parse_number(at.decode("ascii")), rest)
    if path_root(leaf_hash(said), parse_number(index.removeprefix("index ")), checkpoint.size, path) != checkpoint.root:
        raise ProofError("the segment is not in the log of the checkpoint")
    return Proven(entry, checkpoint, times_of(checkpoint, keys))


def times_of(checkpoint: Checkpoint, keys: Sequence[NoteKey]) -> list[int]:
    """Return the times at which witnesses cosigned a checkpoint. Raises ProofError if one of the keys has not signed
    it.
    """
    times = []
    for key in keys:
        time_s = checkpoint.time_of(key)
        if time_s is None:
            raise ProofError(f"{key.name} ({key.hash.hex()}) has not signed the checkpoint")
        times.append(time_s)
    return [time_s for time_s in times if time_s]


def _check_line(line: bytes, entry: Entry, at: int, rest: bytes) -> None:
    """Raise ProofError unless `line` is line `at` of the segment."""
    if not 0 <= at < entry.events:
        raise ProofError(f"the segment has {entry.events:,} lines, and this is said to be number {at:,}")
    width = min(_GROUP, entry.events - at // _GROUP * _GROUP) * _DIGEST_BYTES
    group, path = rest[:width], rest[width:]
    first = at % _GROUP * _DIGEST_BYTES
    if group[first : first + _DIGEST_BYTES].hex() != line_digest(line):
        raise ProofError("the proof is of another line")
    hashes = [path[each : each + _DIGEST_BYTES] for each in range(0, len(path), _DIGEST_BYTES)]
    size = -(-entry.events // _GROUP)
    if path_root(_short_leaf(group), at // _GROUP, size, hashes, _short_node).hex() != entry.lines_root:
        raise ProofError("the line is not in the segment")
