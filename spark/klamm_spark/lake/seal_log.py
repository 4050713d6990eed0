"""The log of a lake. `ship` adds the seals of the ledger, signs a checkpoint, and asks witnesses to cosign it.

A new `ship` continues the log from its files, and may have been killed at any point before. It writes entries again if
no checkpoint covers them, and adds entries that the ledger has and the log lacks. A checkpoint is on the disk before a
witness sees it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from klamm_spark.errors import LakeError
from klamm_spark.lake.layout import Lake
from klamm_spark.lake.log_entries import NO_LINES, Entry, lines_root
from klamm_spark.lake.seals import SealRow, read_seal_files
from klamm_spark.settings.spark import SparkSettings
from klamm_spark.spool.layout import Seal
from klamm_spark.spool.signatures import SealSigner
from klamm_spark.storage.filesystems import SMALL_BYTES, create_durably, read_file
from klamm_spark.tlog.merkle import EMPTY_ROOT, leaf_hash, root_of
from klamm_spark.tlog.notes import LOG_KEY, Checkpoint, NoteSigner
from klamm_spark.tlog.submit import RefusedError, Submitter, UnavailableError
from klamm_spark.tlog.tiles import Tiles, append_entries
from klamm_spark.tlog.timestamps import Authority, Stamper

CHECKPOINT: Final = "checkpoint"
_WAIT_S: Final = 60.0


def is_elsewhere(settings: SparkSettings) -> bool:
    """Return True if the settings do not name the log's folder although they must, because the lake is at a URI."""
    return settings.log is None and isinstance(settings.lake, str)


def log_folder(settings: SparkSettings) -> Path:
    """Return the folder of the log's files. Raises LakeError."""
    if settings.log is not None:
        return settings.log
    if isinstance(settings.lake, str):
        raise LakeError(
            f"the log of a lake at a URI needs a folder of its own: log in [audit.spark], for {settings.lake}"
        )
    return settings.lake / "tlog"


def open_log(
    lake: Lake, settings: SparkSettings, say: Callable[[str], None], anchor: Callable[[dict[str, Any]], None] | None
) -> TransparencyLog | None:
    """Return the log with all entries of the ledger, or None if the settings have no log. Raises LakeError."""
    if settings.log_key is None:
        if settings.timestamps:
            raise LakeError("timestamps need log_key: they are of the log's checkpoints")
        return None
    signer = NoteSigner(SealSigner(settings.log_key), settings.log_origin, LOG_KEY)
    witnesses = [Submitter.of(text) for text in settings.witnesses]
    folder, stamper = log_folder(settings), None
    if settings.timestamps:
        if settings.timestamp_roots is None:
            raise LakeError("timestamps need timestamp_roots: the certificates that verify will check them by")
        authority = Authority(settings.timestamp_roots)
        stamper = Stamper(folder, authority, settings.timestamps, settings.timestamp_interval_ms)
    log = TransparencyLog(folder, signer, witnesses, say, anchor, stamper)
    log.catch_up(lake)
    return log


class _Known(NamedTuple):
    """A segment in the log: the root of its lines' tree, and the SHA-256 of its seal, or of both if it has two."""

    lines_root: str
    seals: set[str]


class TransparencyLog:
    """The log, open for appending. `refused` is True if a witness has seen another log than this one."""

    def __init__(
        self,
        folder: Path,
        signer: NoteSigner,
        witnesses: Sequence[Submitter],
        say: Callable[[str], None],
        anchor: Callable[[dict[str, Any]], None] | None = None,
        stamper: Stamper | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the log's files. Raises LakeError if they differ from its checkpoint."""
        self._folder, self._signer, self._witnesses = folder, signer, witnesses
        self._say, self._anchor, self._stamper, self._monotonic_s = say, anchor, stamper, monotonic_s
        self._again_s: dict[str, float] = {}
        self._known: dict[str, _Known] = {}
        self.refused = False
        try:
            self.checkpoint = self._read()
        except (OSError, ValueError) as error:
            raise LakeError(f"the log {folder} cannot go on: {error}") from error
        say(f"log: {self.checkpoint.size:,} entries, of {signer.key}")

    def _read(self) -> Checkpoint:
        leaves, key = list[bytes](), self._signer.key
        try:
            found = Checkpoint.parse(read_file(self._folder / CHECKPOINT, SMALL_BYTES))
        except FileNotFoundError:
            return Checkpoint(key.name, 0, EMPTY_ROOT)
        if found.origin != key.name or found.time_of(key) is None:
            raise ValueError(f"its checkpoint is of {found.origin}, or not signed with {key}")
        for data in Tiles(self._folder, found.size).entries():
            leaves.append(leaf_hash(data))
            entry = Entry.parse(data)
            self._known.setdefault(entry.segment, _Known(entry.lines_root, set())).seals.add(entry.seal_sha256)
        if root_of(leaves) != found.root:
            raise ValueError("its entries are not what its checkpoint says")
        return found

    def catch_up(self, lake: Lake) -> None:
        """Add the entries that the ledger has and the log lacks. Raises LakeError."""
        missing = {row.segment for file in read_seal_files(lake) for row in file.rows if self._is_new(row)}
        files = read_seal_files(lake, lines_of=frozenset(missing)) if missing else ()
        self.append(row for file in files for row in file.rows)

    def _is_new(self, row: SealRow) -> bool:
        known = self._known.get(row.segment)
        return known is None or seal_sha256(row) not in known.seals

    def append(self, rows: Iterable[SealRow]) -> None:
        """Add those rows of the ledger that the log lacks, and ask the witnesses to cosign. Raises LakeError."""
        entries = self._entries(rows)
        try:
            if entries:
                size = append_entries(self._folder, self.checkpoint.size, entries)
                self._publish(Checkpoint(self._signer.key.name, size, Tiles(self._folder, size).tree.root(size)))
            cosigned = bool(self.checkpoint.size) and self._cosign()
            if cosigned:
                create_durably(self._folder / CHECKPOINT, str(self.checkpoint).encode())
            if self._stamper is not None and self.checkpoint.size:
                self._stamp(self._stamper)
        except (OSError, ValueError) as error:
            raise LakeError(f"the log {self._folder} cannot be written: {error}") from error
        if (entries or cosigned) and self._anchor is not None:
            self._anchor({"origin": self.checkpoint.origin, "checkpoint": str(self.checkpoint)})

    def _entries(self, rows: Iterable[SealRow]) -> list[bytes]:
        """Return the entries of new rows, in the order of their segments."""
        # When a boot has ended, the ledger has its last seal again, without the lines. Their root is then known
        # already.
        found, ends = list[Entry | None](), list[SealRow]()
        for row in rows:
            if row.lines:
                found.append(self._entry(row))
            else:
                ends.append(row)
        found += map(self._entry, ends)
        return [entry.to_bytes() for entry in sorted(entry for entry in found if entry is not None)]

    def _entry(self, row: SealRow) -> Entry | None:
        """Return the entry of a row. None if the log has the row, or if it is invalid: then `verify` reports it."""
        if not self._is_new(row):
            return None
        known = self._known.get(row.segment)
        try:
            entry = entry_of(row, known.lines_root if known else lines_root(row.lines))
        except ValueError:
            return None
        self._known.setdefault(row.segment, _Known(entry.lines_root, set())).seals.add(entry.seal_sha256)
        return entry

    def _publish(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint.signed(self._signer.line(checkpoint.text))
        create_durably(self._folder / CHECKPOINT, str(self.checkpoint).encode())

    def _stamp(self, stamper: Stamper) -> None:
        try:
            stamper.stamp(self.checkpoint)
        except UnavailableError as error:
            self._say(f"{self.checkpoint.size:,} entries of the log have no time stamp: {error}")

    def _cosign(self) -> bool:
        """Ask each witness whose cosignature is missing, unless it failed a moment ago.

        Return True if a witness has cosigned.
        """
        answered = False
        for witness in self._witnesses:
            name = witness.key.name
            if self._monotonic_s() < self._again_s.get(name, 0) or self.checkpoint.time_of(witness.key) is not None:
                continue
            try:
                line = witness.cosign(self.checkpoint, Tiles(self._folder, self.checkpoint.size).tree)
            except UnavailableError as error:
                self._say(f"{name} has not cosigned {self.checkpoint.size:,} entries of the log: {error}")
            except RefusedError as error:
                self.refused = True
                self._say(f"{name} refuses the log: {error}. Compare it with what others keep of it")
            else:
                self.checkpoint = self.checkpoint.signed(line)
                answered = True
                continue
            self._again_s[name] = self._monotonic_s() + _WAIT_S
        return answered


def seal_sha256(row: SealRow) -> str:
    """Return the hash of a row's seal, as entries have it."""
    return hashlib.sha256(row.seal.encode()).hexdigest()


def entry_of(row: SealRow, root: str) -> Entry:
    """Return the entry of a row of the ledger. `root` is the root of its lines' tree. Raises ValueError."""
    seal = Seal.parse(row.seal)
    # Without digests no line can be proven, and the number of lines decides the form of a proof. So it is 0.
    events = 0 if root == NO_LINES else seal.events
    entry = Entry(row.node, row.segment, seal.last_seq, events, root, seal_sha256(row))
    if Entry.parse(entry.to_bytes()) != entry or (seal.node, seal.segment) != (row.node, row.segment):
        raise ValueError(f"{row.segment}: its seal is that of {seal.segment}")
    return entry
