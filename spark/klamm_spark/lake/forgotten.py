"""Records of the events that `klamm audit forget` has deleted: `LAKE/forgotten`, a folder of Parquet files.

A row has the numbers of the forgotten events of one segment, the time, the rule, and the digests of the deleted lines.
Together with the digests of the remaining rows they still give the hash in the segment's seal. So the deletion can be
checked without the deleted events, and no other row can be removed as "forgotten" unless a record is changed. If
`forget` has a key, records are signed. They name their lake, because two lakes may have the events of one spool, and
use one key.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Final, NamedTuple

from klamm_spark.lake.keys import keys_of
from klamm_spark.lake.layout import Lake
from klamm_spark.lake.ranges import Ranges
from klamm_spark.lake.text_files import read_text_files, write_text_file
from klamm_spark.spool.layout import NODE_END, parse_object, split_digests
from klamm_spark.spool.signatures import PUBLIC_SUFFIX, PublicKeys, SealSigner
from klamm_spark.storage.filesystems import AnyPath, create_durably

ALL_LINES: Final = None
"""The value of `Forgotten.digests` if no line of the segment is left."""
_KEYS: Final = f"{NODE_END}forget"
"""The folder of the public keys in `LAKE/keys`. No folder of a spool can have this name."""
_COLUMNS: Final = ("segment", "record", "digests")


@dataclass(frozen=True, slots=True)
class Record:
    """The events of a segment that were forgotten at one time: those before `before_us` of these `kinds`.

    `seqs` are their numbers, as `Ranges` writes them. If `whole` is True, no line of the segment is left, and there are
    no digests. `digests_sha256` is the hash of `digests`, which have their own column. `lake` is the `Lake.table_id`.
    """

    segment: str
    forgotten_time_us: int
    before_us: int
    kinds: str
    lines: int
    seqs: str
    whole: bool
    digests_sha256: str
    lake: str
    key_id: str = ""
    signature: str = ""

    def to_json(self) -> bytes:
        """Return the bytes for a signature, if `signature` is empty."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    def signed(self, signer: SealSigner) -> Record:
        """Return the record with a signature."""
        record = replace(self, key_id=signer.key_id, signature="")
        return replace(record, signature=signer.sign(record.to_json()))


@dataclass(slots=True)
class Forgotten:
    """All forgotten events of one segment. `digests` may be `ALL_LINES`."""

    digests: set[str] | None = field(default_factory=set)
    seqs: Ranges = field(default_factory=Ranges)

    @property
    def lines(self) -> int:
        """Return the number of digests."""
        return len(self.digests or ())


class KnownForgotten(NamedTuple):
    """The forgotten events by segment, and the faults of the table.

    `records` is the number of all records. `signed_by` counts the valid records by the key that has signed them.
    """

    segments: dict[str, Forgotten]
    breaks: list[str]
    records: int
    signed_by: Counter[str]


class _Expected(NamedTuple):
    """The requirements for a valid record: the right lake, and if there are `keys`, a signature of one of them."""

    keys: PublicKeys
    lake: str

    def problem(self, record: Record) -> str | None:
        """Return the fault of a record's lake or signature, or None."""
        if record.lake != self.lake:
            return f"is of another lake: {record.lake}"
        if self.keys and not record.signature:
            return "is not signed"
        signed = replace(record, signature="").to_json()
        if self.keys and not self.keys.has_signed(record.key_id, record.signature, signed):
            return f"has a wrong signature, or one of the key {record.key_id}, which is not in the lake or not trusted"
        return None


def digests_sha256(digests: str) -> str:
    """Return the hash of a record's digests."""
    return hashlib.sha256(digests.encode()).hexdigest()


def write_records(lake: Lake, rows: Sequence[tuple[Record, str]]) -> None:
    """Add records with their digests. Either all of them are added, or none."""
    texts = [(record.segment, record.to_json().decode(), digests) for record, digests in rows]
    write_text_file(lake.forgotten, _COLUMNS, texts)


def keep_key(lake: Lake, signer: SealSigner) -> None:
    """Write the public key to the lake, unless it is there."""
    path: AnyPath = lake.root / "keys" / _KEYS / f"{signer.key_id}{PUBLIC_SUFFIX}"
    if not path.exists():
        create_durably(path, signer.public_pem)


def read_forgotten(lake: Lake, lake_id: str, trusted: Collection[str] = ()) -> KnownForgotten:
    """Return all records. The faults of invalid ones are in `breaks`, and they do not count.

    A record is invalid if it names another lake than `lake_id`. With `trusted` ids of keys, it is also invalid without
    a signature of one of these keys. Raises KeyFileError.
    """
    expected = _Expected(keys_of(lake, _KEYS, trusted), lake_id)
    known = KnownForgotten({}, [], 0, Counter())
    count = 0
    for file in read_text_files(lake.forgotten, _COLUMNS):
        if file.problem:
            known.breaks.append(f"{file.path} {file.problem}")
        for segment, text, digests in file.rows:
            count += 1
            try:
                record = _parse(segment, text, digests, expected)
            except ValueError as error:
                known.breaks.append(f"{file.path}: {segment}: the record of what was forgotten {error}")
                continue
            _add(known, record, digests)
            if expected.keys:
                known.signed_by[record.key_id] += 1
    return known._replace(records=count)


def _parse(segment: str, text: str, digests: str, expected: _Expected) -> Record:
    """Return a record. Raises ValueError if it must not count."""
    try:
        record = parse_object(Record, text)
        Ranges.parse(record.seqs)
    except ValueError as error:
        raise ValueError(f"cannot be read: {error}") from error
    if record.segment != segment or record.digests_sha256 != digests_sha256(digests):
        raise ValueError("was changed: it is that of another segment, or of other lines")
    problem = expected.problem(record)
    if problem is not None:
        raise ValueError(problem)
    return record


def _add(known: KnownForgotten, record: Record, digests: str) -> None:
    forgotten = known.segments.setdefault(record.segment, Forgotten())
    forgotten.seqs |= Ranges.parse(record.seqs)
    if record.whole or forgotten.digests is None:
        forgotten.digests = ALL_LINES
    else:
        forgotten.digests.update(split_digests(digests))
