"""Attacks on a trail, drawn by a seed. The targets are listed from the code and from the files on the disk.

So each field of a seal or of the log, each column of the lake and each file in it has attacks without a change here. A
file of an unknown kind fails the test.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from itertools import chain, combinations
from pathlib import Path
from typing import Any, Final, NamedTuple

from klamm_spark.lake.log_entries import Entry
from klamm_spark.lake.seals import SealRow
from klamm_spark.spool.layout import Seal
from klamm_spark.spool.signatures import KeyFileError, key_id_of
from klamm_spark.tlog.notes import Checkpoint
from tests.unit.audit.log_attacks import FORKED, LOG_WAYS, ROLLED_BACK, LogAttack
from tests.unit.audit.logged_lake import WITNESS

KINDS: Final = {
    "rows": "events/date=*/*/*.parquet",
    "commits": "events/_delta_log/*.json",
    "seals": "seals/*.parquet",
    "keys": "keys/*/*.pub",
    "forgotten": "forgotten/*.parquet",
    "entries": "tlog/tile/entries/**/*",
    "tiles": "tlog/tile/[0-9]*/**/*",
    "checkpoint": "tlog/checkpoint",
}
"""The kinds of files in a lake, with their patterns."""
OF_ROWS: Final = ("rows", "commits")
"""Kinds of files that Spark reads."""
NOT_COSIGNED: Final = "has not signed its newest checkpoint"
COPIED: Final = ("events", "seals", "keys", "tlog")
"""Folders of the lake of which an attacker may have older copies."""


class HarmlessError(Exception):
    """Raised if every reader still reads the original content, so that the change is not an attack."""


class TrailAttack(LogAttack):
    """One attack. Afterwards a report must contain one of the names in `touched`."""

    # ---- files

    def of_kind(self, kind: str) -> list[Path]:
        """Return the files of a kind that the newest version of the lake needs."""
        if kind in ("entries", "tiles"):
            return [path for path in self.files() if ("entries" in path.parts) == (kind == "entries")]
        return [path for path in files_by_kind(self.root)[kind] if path.stat().st_size]

    @property
    def root(self) -> Path:
        return Path(str(self.lake.root))

    def at_a_file(self, kind: str, change: Callable[[TrailAttack, Path, Path], None]) -> None:
        """Change a file, perhaps with the content of another file of its kind."""
        files = self.of_kind(kind)
        if not files:
            raise HarmlessError
        path, other = self.choose.choice(files), self.choose.choice(files)
        before = self.content(kind)
        self.name_a_file(kind, path, other)
        change(self, path, other)
        if self.content(kind) == before:
            raise HarmlessError

    def content(self, kind: str) -> Any:
        """Return the content that readers read from the files of a kind."""
        found = {path: path.read_bytes() for path in self.root.glob(KINDS[kind]) if path.is_file()}
        if kind == "checkpoint":
            # A verifier that pins a witness's key requires no other signature.
            with suppress(ValueError):
                return [
                    (now.text, [line for line in now.lines if line.name == WITNESS])
                    for now in map(Checkpoint.parse, found.values())
                ]
        if kind != "keys":
            return found
        keys: dict[Path, str] = {}
        for path, pem in found.items():
            keys[path.parent] = ""
            with suppress(KeyFileError):
                keys[path.parent] += key_id_of(pem)
        return keys

    def name_a_file(self, kind: str, *paths: Path) -> None:
        for path in paths:
            self.touched.add(str(path))
            if kind == "seals":
                self.touched |= {f"{row.segment} " for row in self.seals_in(path)}
            elif kind == "keys":
                self.touched.add(path.stem)
            elif kind in ("entries", "tiles", "checkpoint"):
                self.touched |= {"the log was changed", "was taken away or changed", FORKED, ROLLED_BACK, NOT_COSIGNED}

    def seals_in(self, path: Path) -> list[SealRow]:
        import pyarrow.parquet as pq

        return [SealRow(**row) for row in pq.read_table(path).to_pylist()]

    # ---- fields

    def field_of_a_seal(self, name: str, *, signed: bool) -> None:
        """Change a field of a seal, without or with the server's key."""

        def change(row: SealRow) -> SealRow:
            seal = Seal.parse(row.seal)
            seal = replace(seal, **{name: self.other(getattr(seal, name))})
            if signed:
                seal = self.server.signed(seal)
            if seal.to_json().decode() == row.seal:
                raise HarmlessError
            return row._replace(seal=seal.to_json().decode())

        self.change_a_seal(change)

    def column_of_the_ledger(self, name: str) -> None:
        def change(row: SealRow) -> SealRow:
            self.touched.add(f"{row.segment}: its row says another ")
            return row._replace(**{name: self.other(getattr(row, name))})

        self.change_a_seal(change)

    def field_of_an_entry(self, name: str) -> None:
        """Write another log with a changed field, signed with the log's key."""
        entries = self.entries()
        at = self.choose.randrange(self.pinned)
        entry = Entry.parse(entries[at])
        entries[at] = entry._replace(**{name: self.other(getattr(entry, name))}).to_bytes()
        self.rebuild(entries)
        self.touched.add(FORKED)

    def field_of_the_checkpoint(self, name: str) -> None:
        """Change a field of the checkpoint, and sign it with the log's key, unless the field is the signatures."""
        old = self.checkpoint()
        if name == "lines":
            forged = replace(old, lines=old.lines[: self.choose.randrange(len(old.lines))])
            self.touched.add(NOT_COSIGNED)
        else:
            forged = replace(old, **{name: self.other(getattr(old, name))}, lines=())
            forged = forged.signed(self.log_signer.line(forged.text))
            self.touched |= {FORKED, ROLLED_BACK, "the log was changed", "this one is ", NOT_COSIGNED}
        (self.folder / "checkpoint").write_text(str(forged))
        self.touched.add("was taken away or changed")

    def other(self, value: Any) -> Any:
        """Return another value of the same type and form."""
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return value + self.choose.choice((-1, 1, 1000)) if value else 1
        if isinstance(value, bytes):
            return self.choose.randbytes(len(value))
        if not value:
            return "x"
        at = self.choose.randrange(len(value))
        digit = self.choose.choice([each for each in "0123456789abcdef" if each != value[at]])
        return self.choose.choice((value[:at] + digit + value[at + 1 :], value[:at] + value[at + 1 :], value + digit))

    # ---- older copies

    def older_copies(self, names: Sequence[str]) -> None:
        """Put back older copies of some folders."""
        before = {row.segment for row in self.seals()}
        newer = sorted(path.relative_to(self.root) for path in self.root.glob("events/**/*.parquet"))
        for name in names:
            shutil.rmtree(self.root / name, ignore_errors=True)
            shutil.copytree(self.older / name, self.root / name)
        gone = before - {row.segment for row in self.seals()}
        is_older = newer != sorted(path.relative_to(self.root) for path in self.root.glob("events/**/*.parquet"))
        if not gone and not is_older and "tlog" not in names:
            raise HarmlessError
        # The rows show which segments they have lost.
        self.touched |= {ROLLED_BACK} if "tlog" in names else {f"{segment} " for segment in gone} or {"is missing"}


def files_by_kind(root: Path) -> dict[str, list[Path]]:
    """Return all files of a lake by kind. Raises AssertionError for a file of an unknown kind, because such a
    file needs attacks too.
    """
    found = {kind: [path for path in sorted(root.glob(glob)) if path.is_file()] for kind, glob in KINDS.items()}
    known = set(chain.from_iterable(found.values()))
    unknown = [path for path in root.rglob("*") if path.is_file() and path not in known and not _is_spare(path)]
    assert unknown == [], "no attack is known for it: add its kind to KINDS"
    return found


def _is_spare(path: Path) -> bool:
    """Return True if no reader needs a file: checksums of Hadoop and Delta, and the lock of `ship`."""
    return path.name.startswith(".") or path.suffix == ".crc" or path.parent.name == "_commits"


def _flip(attack: TrailAttack, path: Path, other: Path) -> None:
    data = bytearray(path.read_bytes())
    data[attack.choose.randrange(len(data))] ^= 1 << attack.choose.randrange(8)
    path.write_bytes(bytes(data))


def _cut(attack: TrailAttack, path: Path, other: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: attack.choose.randrange(len(data))])


def _drop(attack: TrailAttack, path: Path, other: Path) -> None:
    path.unlink()


def _swap(attack: TrailAttack, path: Path, other: Path) -> None:
    one, two = path.read_bytes(), other.read_bytes()
    path.write_bytes(two)
    other.write_bytes(one)


def _put_in_the_place_of_another(attack: TrailAttack, path: Path, other: Path) -> None:
    path.rename(other)


FILE_CHANGES: Final = (_flip, _cut, _drop, _swap, _put_in_the_place_of_another)


class Way(NamedTuple):
    """A kind of attack. `needs_rows` is True if only a verifier that reads the rows can notice it."""

    name: str
    act: Callable[[TrailAttack], None]
    needs_rows: bool = False


def ways() -> Iterator[Way]:
    """Yield all kinds of attacks except those on single rows."""
    for name in LOG_WAYS:
        yield Way(name, getattr(TrailAttack, name))
    for field in fields(Seal):
        for signed in (False, True):
            act = partial(TrailAttack.field_of_a_seal, name=field.name, signed=signed)
            yield Way(f"seal {field.name}{' signed' if signed else ''}", act)
    yield from (Way(f"ledger {name}", partial(TrailAttack.column_of_the_ledger, name=name)) for name in SealRow._fields)
    yield from (Way(f"entry {name}", partial(TrailAttack.field_of_an_entry, name=name)) for name in Entry._fields)
    for field in fields(Checkpoint):
        yield Way(f"checkpoint {field.name}", partial(TrailAttack.field_of_the_checkpoint, name=field.name))
    for kind in KINDS:
        for change in FILE_CHANGES:
            act = partial(TrailAttack.at_a_file, kind=kind, change=change)
            yield Way(f"{kind}{change.__name__}", act, kind in OF_ROWS)
    for number in range(1, len(COPIED) + 1):
        for names in combinations(COPIED, number):
            act = partial(TrailAttack.older_copies, names=names)
            yield Way(f"older {' '.join(names)}", act, "events" in names)


def drawn(choose: random.Random, tries: int, start: Callable[[], TrailAttack], known: Sequence[Way]) -> Iterator[Any]:
    """Yield `tries` ways with the attacks that were made. Each way comes once before any comes again.

    `start` restores the trail to its original state.
    """
    made, waiting = 0, list[Way]()
    while made < tries:
        if not waiting:
            waiting = choose.sample(known, len(known))
        way, attack = waiting.pop(), start()
        with suppress(HarmlessError):
            way.act(attack)
            made += 1
            yield way.name, attack


def not_named(touched: set[str], lines: Sequence[str]) -> Mapping[str, Any]:
    """Return a description of the error if no line has one of the names; an empty result if one has."""
    return {} if any(name in line for line in lines for name in touched) else {"touched": touched, "said": lines}
