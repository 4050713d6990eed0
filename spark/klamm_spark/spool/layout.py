"""Names and side files of the spool, for writers and readers. No klamm server is needed.

```
SPOOL/NODE/                                        one folder per server
    0190f3c2a1b49f3e21aa-00000000000000091377.open         being written: whole lines, and perhaps a torn last one
    0190f3c2a1b49f3e21aa-00000000000000091377.open.unreadable    a start could not read it, and renamed it; seals too
    2026-01-01/                                    the sealed segments whose first event is of that day, UTC
        0190f3c2a1b49f3e21aa-00000000000000048211.jsonl.zst    never changes; only retention deletes it
        0190f3c2a1b49f3e21aa-00000000000000048211.seal         the segment's numbers and hashes, and the hash chain
        0190f3c2a1b49f3e21aa-00000000000000048211.shipped      the lake has a copy: retention may delete it
    3f1c….pub                                      the public key of the seals' signatures
    .lock                                          locked by the server that writes
SPOOL/NODE~security/                               authentications and denied requests
SPOOL/NODE~administration/                         state changes and administrative events
    intents                                        state changes that run; see `klamm_spark.observer.intents`
```
A server writes three streams. Each has a folder with segments, numbers, a hash chain and a retention of its own. The
boots of `security` end with `s`, and those of `administration` with `a`. Where a text says "a node's folder", it means
the folder of one stream.

Segments of an earlier klamm are in the stream's folder itself, and not in folders of days. Readers take both.
With `compression = "none"` a sealed segment's suffix is `.jsonl`, else `.jsonl.zst` or `.jsonl.gz`.

A segment's name is the boot and the first `seq` in the segment, with twenty digits, so that names sort by time. Each
line is one event (see `klamm_spark.events.event`). A segment holds events of one boot only.

The seal is written and synced before the segment gets its final name, so a sealed segment always has its seal. These
are its hashes, in hex:

- `sha256`: of the uncompressed lines.
- `lines_sha256`: of the sorted digests of the lines. It can also be computed from rows of a lake, in any order.
- `chain`: of `previous_chain`, `sha256` and `lines_sha256`, as ASCII text. If a segment is changed, removed or
  inserted, the chain of all later segments is broken. The first `previous_chain` of a stream is 64 zeros.

Retention deletes seals with their segments, but always keeps the newest seal.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, cast

from klamm_spark.storage.filesystems import SMALL_BYTES, AnyPath, read_file

P = TypeVar("P", bound="AnyPath")
T = TypeVar("T")

OPEN_SUFFIX: Final = ".open"
SEALED_SUFFIX: Final = ".jsonl"
SEAL_SUFFIX: Final = ".seal"
SHIPPED_SUFFIX: Final = ".shipped"
UNREADABLE_SUFFIX: Final = ".unreadable"
COMPRESSED_SUFFIXES: Final = {"none": "", "zstd": ".zst", "gzip": ".gz"}
NO_CHAIN: Final = "0" * 64
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SEQ_DIGITS: Final = 20
_TYPES: Final[dict[str, Any]] = {"str": str, "int": int, "bool": bool}
_MOST: Final = 1 << 63
_OPTIONAL: Final = ("sisters", "key_id", "signature")
_MOST_CHARS: Final = 4096
"""The most characters of each text in a seal, because a commit of the lake has the seals of thousands of segments."""
DIGEST_DIGITS: Final = 32
"""The hex digits that are kept of the SHA-256 of a line."""
REQUESTS: Final = "requests"
SECURITY: Final = "security"
ADMINISTRATION: Final = "administration"
STREAMS: Final = {REQUESTS: "", SECURITY: "s", ADMINISTRATION: "a"}
"""The streams of a server, and the suffix that each stream's boots have."""
NODE_END: Final = "~"
"""The end of a node's name in the name of a folder. No node has this character in its name."""
_BOOT_CHARACTERS: Final = 20


def folder_name(node: str, stream: str) -> str:
    """Return the name of a stream's folder."""
    return node if stream == REQUESTS else f"{node}{NODE_END}{stream}"


def folder_of(seal: Seal) -> str:
    """Return the name of the folder of a seal's stream."""
    return folder_name(seal.node, stream_of(stream_mark(seal.boot)))


def stream_mark(boot: str) -> str:
    """Return the suffix of a boot: a value of `STREAMS`."""
    return boot[_BOOT_CHARACTERS:]


def stream_of(mark: str) -> str:
    """Return the stream of a `stream_mark`. If this klamm does not know the stream, return the mark itself."""
    return next((name for name, each in STREAMS.items() if each == mark), mark)


class SegmentName(NamedTuple):
    """The name of a segment; names of a node sort by time."""

    boot: str
    first_seq: int

    @property
    def stem(self) -> str:
        """Return the name without a suffix."""
        return f"{self.boot}-{self.first_seq:0{_SEQ_DIGITS}d}"


def parse_name(file_name: str) -> SegmentName | None:
    """Return the segment that a file belongs to, whatever its suffix; None if the file is not part of a spool."""
    boot, dash, seq = file_name.partition(".")[0].rpartition("-")
    if not dash or not boot or len(seq) != _SEQ_DIGITS or not (seq.isascii() and seq.isdigit()):
        return None
    return SegmentName(boot, int(seq))


def beside(path: P, suffix: str) -> P:
    """Return the file of the same segment in the same folder with another suffix."""
    return cast("P", path.with_name(path.name.partition(".")[0] + suffix))


def is_sealed(file_name: str) -> bool:
    """Return True if this is the name of a sealed segment, compressed or not."""
    return parse_name(file_name) is not None and file_name.partition(".")[2] in ("jsonl", "jsonl.zst", "jsonl.gz")


@dataclass(frozen=True, slots=True)
class Seal:
    """The content of a `.seal` file: a JSON object with these keys.

    `index` counts a stream's segments from 0 over all boots. `events` is the number of lines, `last_seq` the last `seq`
    in the segment, and `size_bytes` the uncompressed size. `torn_bytes` is the number of bytes that were cut off the
    end after a crash. `clean` is False if the segment was sealed after a crash or a failure of the disk. `final` is
    True for the last segment of a boot that ended in order. `sealed_time_us` is wall-clock time.

    `signature` is the signature of all other keys by the key `key_id`, in base64. Both are left out if the server has
    no key. `sisters` has the newest seals of the server's other streams, each as `Sister` writes it. So the
    removal of a whole stream is noticed.
    """

    schema_version: int
    node: str
    boot: str
    index: int
    segment: str
    first_seq: int
    last_seq: int
    events: int
    size_bytes: int
    sha256: str
    previous_chain: str
    chain: str
    lines_sha256: str
    sealed_time_us: int
    torn_bytes: int = 0
    clean: bool = True
    final: bool = False
    sisters: str = ""
    key_id: str = ""
    signature: str = ""

    def to_json(self) -> bytes:
        """Return the file's content."""
        values = {name: value for name, value in asdict(self).items() if value or name not in _OPTIONAL}
        return json.dumps(values, separators=(",", ":")).encode() + b"\n"

    def without_end(self) -> Seal:
        """Return the seal without the fields that change when the server marks it as the last seal of its boot."""
        return replace(self, final=False, signature="", key_id="")

    @staticmethod
    def read(path: AnyPath) -> Seal:
        """Read a seal from a file. Raises OSError, ValueError."""
        data = read_file(path, SMALL_BYTES)
        try:
            return Seal.parse(data)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    @staticmethod
    def parse(data: bytes | str) -> Seal:
        """Read a seal from the content of its file. Raises ValueError."""
        seal = parse_object(Seal, data)
        if not 0 <= seal.first_seq <= seal.last_seq:
            raise ValueError(f"no segment has the numbers {seal.first_seq} to {seal.last_seq}")
        if long := [field.name for field in fields(seal) if len(str(getattr(seal, field.name))) > _MOST_CHARS]:
            raise ValueError(f"{', '.join(long)} of a seal has at most {_MOST_CHARS:,} characters")
        Sister.all_in(seal)
        return seal


class Sister(NamedTuple):
    """The newest seal of another stream of the server, as a seal names it. `place` is the other seal's index."""

    mark: str
    place: int
    chain: str

    def __str__(self) -> str:
        return f"{self.mark}:{self.place}:{self.chain}"

    @staticmethod
    def of(seal: Seal) -> Sister:
        """Return the name of another stream's seal."""
        return Sister(stream_mark(seal.boot), seal.index, seal.chain)

    @staticmethod
    def all_in(seal: Seal) -> list[Sister]:
        """Return the seals of other streams that a seal names. Raises ValueError."""
        parts = (text.split(":") for text in seal.sisters.split(",") if text)
        return [Sister(mark, int(index), chain) for mark, index, chain in parts]


def parse_object(kind: type[T], data: bytes | str) -> T:
    """Return a dataclass from JSON. Its fields are ASCII texts, numbers of 64 bits and booleans. Raises ValueError."""
    try:
        found = kind(**json.loads(data))
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    for field in fields(cast("Any", kind)):
        value: Any = getattr(found, field.name)
        if type(value) is not _TYPES[str(field.type)]:
            raise ValueError(f"{field.name} has the wrong type")
        if not (value.isascii() if isinstance(value, str) else -_MOST <= value < _MOST):
            raise ValueError(f"{field.name} has a value that it cannot have")
    return found


def chain_of(previous_chain: str, sha256: str, lines_sha256: str) -> str:
    """Return the next value of the hash chain."""
    return hashlib.sha256(f"{previous_chain}{sha256}{lines_sha256}".encode("ascii")).hexdigest()


def line_digest(line: bytes) -> str:
    """Return the digest of one line, given without its newline."""
    return hashlib.sha256(line).hexdigest()[:DIGEST_DIGITS]


def digests_of(data: bytes) -> list[str]:
    """Return the digest of each line, in order."""
    return [line_digest(line) for line in data.split(b"\n")[:-1]]


def split_digests(text: str) -> list[str]:
    """Return the digests of lines from a text in which one follows the other."""
    return [text[at : at + DIGEST_DIGITS] for at in range(0, len(text), DIGEST_DIGITS)]


def lines_sha256(digests: Iterable[str]) -> str:
    """Return the SHA-256 of the lines' digests. Order and repetition do not change it."""
    return hashlib.sha256("".join(sorted(set(digests))).encode("ascii")).hexdigest()


def node_folders(spool: AnyPath) -> Iterator[AnyPath]:
    """Yield the folders of all streams of all nodes of a spool."""
    yield from sorted(path for path in spool.iterdir() if path.is_dir())


def node_folder_of(segment: P) -> P:
    """Return the stream's folder for a segment in this folder or in the folder of a day."""
    folder: Any = segment.parent
    return cast("P", folder.parent if _DAY.fullmatch(folder.name) else folder)


def day_of(time_us: int) -> str:
    """Return the name of a day's folder."""
    return (_EPOCH + timedelta(microseconds=time_us)).date().isoformat()


def folders_of(node_folder: P) -> list[P]:
    """Return a stream's folder and the folders of its days, oldest first."""
    days: list[Any] = [path for path in node_folder.iterdir() if _DAY.fullmatch(path.name) and path.is_dir()]
    return [node_folder, *sorted(days)]


def _entries(node_folder: P) -> list[P]:
    """Return the files of a stream's folder and of its days, sorted by name. Names of segments sort by time."""
    found: list[Any] = []
    days: list[Any] = []
    for path in node_folder.iterdir():
        (days if _DAY.fullmatch(path.name) and path.is_dir() else found).append(path)
    for day in days:
        # Retention may have deleted it.
        with contextlib.suppress(FileNotFoundError):
            found.extend(day.iterdir())
    return sorted(found, key=lambda path: path.name)


def segment_files(node_folder: P, suffix: str = "") -> list[P]:
    """Return a stream's files that belong to segments and end with `suffix`, oldest first."""
    return [path for path in _entries(node_folder) if path.name.endswith(suffix) and parse_name(path.name)]


def find_file(node_folder: P, *names: str) -> P | None:
    """Return a file with one of these names from a stream's folder or its days; None if there is none."""
    folders: list[Any] = folders_of(node_folder)
    paths = (folder / name for folder in reversed(folders) for name in names)
    return next((path for path in paths if path.exists()), None)


def sealed_segments(node_folder: P) -> list[P]:
    """Return a node's sealed segments, oldest first."""
    return [path for path in _entries(node_folder) if is_sealed(path.name)]


def open_segments(node_folder: P) -> list[P]:
    """Return a stream's open segments: one, but after a crash perhaps several until the next start."""
    paths: list[Any] = [path for path in node_folder.iterdir() if path.suffix == OPEN_SUFFIX and parse_name(path.name)]
    return sorted(paths)


def unreadable_files(node_folder: Path) -> list[Path]:
    """Return the files that a start could not read and has renamed, oldest first."""
    return segment_files(node_folder, UNREADABLE_SUFFIX)
