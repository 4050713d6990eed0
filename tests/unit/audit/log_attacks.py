"""Attacks of someone with root on server and lake, and with their keys, on a log and on what it says about the lake."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from klamm_spark.lake.layout import Lake
from klamm_spark.lake.log_entries import Entry
from klamm_spark.lake.seal_log import TransparencyLog
from klamm_spark.lake.seals import SealRow, read_seal_files, write_rows
from klamm_spark.spool.layout import Seal, chain_of, lines_sha256
from klamm_spark.spool.signatures import SealSigner
from klamm_spark.tlog.notes import Checkpoint, NoteSigner
from klamm_spark.tlog.tiles import Tiles, append_entries, tile_name

FORKED = "forked or rewritten"
ROLLED_BACK = "rolled back"


class LogAttack:
    """One attack. A report must contain one of the names in `touched`.

    `in_log` is True if the log's own files show the attack. `older` is a copy of the lake before some of the entries
    that are pinned.
    """

    def __init__(
        self, lake: Lake, older: Path, keys: tuple[SealSigner, NoteSigner], choose: random.Random, pinned: int
    ) -> None:
        self.lake, self.older, self.choose, self.pinned = lake, older, choose, pinned
        self.server, self.log_signer = keys
        self.folder = Path(str(lake.root)) / "tlog"
        self.touched: set[str] = set()
        self.in_log = True

    # ---- the log's files

    def checkpoint(self) -> Checkpoint:
        return Checkpoint.parse((self.folder / "checkpoint").read_bytes())

    def entries(self) -> list[bytes]:
        return list(Tiles(self.folder, self.checkpoint().size).entries())

    def rebuild(self, entries: Sequence[bytes]) -> None:
        """Write another log, and sign it with the stolen key."""
        shutil.rmtree(self.folder)
        size = append_entries(self.folder, 0, entries)
        forged = Checkpoint(self.log_signer.key.name, size, Tiles(self.folder, size).tree.root(size))
        (self.folder / "checkpoint").write_text(str(forged.signed(self.log_signer.line(forged.text))))

    def files(self) -> list[Path]:
        """Return the files that the newest checkpoint needs. Other files are parts of tiles for older checkpoints."""
        size, level = self.checkpoint().size, 0
        names = [tile_name("entries", at, min(256, size - at * 256)) for at in range(-(-size // 256))]
        while size:
            names += [tile_name(level, at, min(256, size - at * 256)) for at in range(-(-size // 256))]
            level, size = level + 1, size >> 8
        return [self.folder / name for name in names]

    def change_a_file(self) -> None:
        path = self.choose.choice(self.files())
        data = bytearray(path.read_bytes())
        data[self.choose.randrange(len(data))] ^= 1 << self.choose.randrange(8)
        path.write_bytes(bytes(data))
        self.touched |= {"the log was changed", FORKED}

    def cut_a_file(self) -> None:
        path = self.choose.choice(self.files())
        path.write_bytes(path.read_bytes()[: -self.choose.randrange(1, 40)])
        self.touched |= {str(path), FORKED}

    def drop_a_file(self) -> None:
        path = self.choose.choice(self.files())
        path.unlink()
        self.touched.add(f"{path} is missing")

    def swap_files(self) -> None:
        one, other = self.choose.sample(self.files(), 2)
        first, second = one.read_bytes(), other.read_bytes()
        one.write_bytes(second)
        other.write_bytes(first)
        self.touched |= {"the log was changed", FORKED, ROLLED_BACK}

    def change_the_checkpoint(self) -> None:
        old = self.checkpoint()
        forged = replace(old, root=self.choose.randbytes(32), lines=())
        (self.folder / "checkpoint").write_text(str(forged.signed(self.log_signer.line(forged.text))))
        self.touched.add(FORKED)

    def take_the_checkpoint_away(self) -> None:
        (self.folder / "checkpoint").unlink()
        self.touched.add("was taken away or changed")

    def take_the_log_away(self) -> None:
        shutil.rmtree(self.folder)
        self.touched.add("was taken away or changed")

    def put_an_older_log_back(self) -> None:
        shutil.rmtree(self.folder)
        shutil.copytree(self.older / "tlog", self.folder)
        self.touched.add(ROLLED_BACK)

    def put_everything_older_back(self) -> None:
        for name in ("tlog", "seals"):
            shutil.rmtree(Path(str(self.lake.root)) / name)
            shutil.copytree(self.older / name, Path(str(self.lake.root)) / name)
        self.touched.add(ROLLED_BACK)

    def sign_a_smaller_log(self) -> None:
        self.rebuild(self.entries()[: self.choose.randrange(1, self.pinned)])
        self.touched.add(ROLLED_BACK)

    def drop_an_entry(self) -> None:
        entries = self.entries()
        del entries[self.choose.randrange(self.pinned)]
        self.rebuild([*entries, entries[-1]])
        self.touched.add(FORKED)

    def swap_entries(self) -> None:
        entries = self.entries()
        one, other = self.choose.sample(range(self.pinned), 2)
        entries[one], entries[other] = entries[other], entries[one]
        self.rebuild(entries)
        self.touched.add(FORKED)

    def insert_an_entry(self) -> None:
        entries = self.entries()
        entry = Entry.parse(self.choose.choice(entries))._replace(seal_sha256=self.choose.randbytes(32).hex())
        entries.insert(self.choose.randrange(self.pinned), entry.to_bytes())
        self.rebuild(entries)
        self.touched.add(FORKED)

    def call_it_another_log(self) -> None:
        other = self.checkpoint().origin + "2"
        forged = replace(self.checkpoint(), origin=other)
        (self.folder / "checkpoint").write_text(str(forged))
        self.touched.add(f"this one is {other}")

    # ---- the lake's seals

    def seals(self) -> list[SealRow]:
        return [row for file in read_seal_files(self.lake, lines_of=None) for row in file.rows]

    def write_seals(self, rows: Sequence[SealRow]) -> None:
        shutil.rmtree(Path(str(self.lake.seals)))
        write_rows(self.lake, rows)

    def drop_a_seal(self) -> None:
        rows = self.seals()
        gone = self.choose.choice(rows)
        self.write_seals([row for row in rows if row.segment != gone.segment])
        self.touched.add(f"{gone.segment} of {gone.node}")
        self.in_log = False

    def change_the_digests_of_lines(self) -> None:
        def change(row: SealRow) -> SealRow:
            at = self.choose.randrange(len(row.lines))
            other = "0" if row.lines[at] != "0" else "1"
            return row._replace(lines=row.lines[:at] + other + row.lines[at + 1 :])

        self.change_a_seal(change)

    def drop_the_digests_of_lines(self) -> None:
        self.change_a_seal(lambda row: row._replace(lines=""))

    def change_a_seal(self, change: Callable[[SealRow], SealRow]) -> None:
        rows = self.seals()
        at = self.choose.choice([at for at, row in enumerate(rows) if row.lines])
        self.touched.add(f"{rows[at].segment} of {rows[at].node}")
        rows[at] = change(rows[at])
        self.write_seals(rows)
        self.in_log = False

    def sign_a_seal_again(self) -> None:
        """Change a seal, and sign it with the server's stolen key."""

        def change(row: SealRow) -> SealRow:
            seal = Seal.parse(row.seal)
            seal = replace(seal, sealed_time_us=seal.sealed_time_us + 1, signature="", key_id="")
            return row._replace(seal=self.server.signed(seal).to_json().decode())

        self.change_a_seal(change)

    def rewritten(self) -> list[SealRow]:
        """Return the ledger without one line of a segment, with a chain and signatures that fit."""
        rows = sorted(self.seals(), key=lambda row: (row.segment, not row.lines))
        gone = self.choose.randrange(self.pinned - 1)
        self.touched.add(f"{rows[gone].segment} of {rows[gone].node}")
        chains: dict[str, str] = {}
        found = []
        for at, row in enumerate(rows):
            digests = [row.lines[each : each + 32] for each in range(0, len(row.lines), 32)]
            seal = Seal.parse(row.seal)
            if at == gone:
                del digests[self.choose.randrange(len(digests))]
                seal = replace(seal, events=len(digests), lines_sha256=lines_sha256(digests), sha256="ab" * 32)
            previous = chains.get(seal.node, seal.previous_chain)
            chain = chain_of(previous, seal.sha256, seal.lines_sha256)
            chains[seal.node] = chain
            seal = replace(seal, previous_chain=previous, chain=chain, signature="", key_id="")
            found.append(row._replace(seal=self.server.signed(seal).to_json().decode(), lines="".join(digests)))
        return found

    def rewrite_the_ledger(self) -> None:
        self.write_seals(self.rewritten())
        self.in_log = False

    def rewrite_the_ledger_and_the_log(self) -> None:
        self.write_seals(self.rewritten())
        shutil.rmtree(self.folder)
        TransparencyLog(self.folder, self.log_signer, [], lambda line: None).catch_up(self.lake)
        self.touched = {FORKED}

    def insert_a_seal(self) -> None:
        """Insert the seal of a segment that never existed between two others, signed with the server's stolen key."""
        row = min(self.seals(), key=lambda row: row.segment)
        seal = json.loads(row.seal) | {"first_seq": 1, "segment": f"{row.boot}-{1:020d}", "signature": "", "key_id": ""}
        forged = self.server.signed(Seal.parse(json.dumps(seal)))
        new = row._replace(segment=forged.segment, seal=forged.to_json().decode())
        self.write_seals([*self.seals(), new])
        self.touched.add(f"{forged.segment} of {row.node} has a seal that is not in the log")
        self.in_log = False


LOG_WAYS = (
    *("change_a_file", "cut_a_file", "drop_a_file", "swap_files", "change_the_checkpoint", "take_the_checkpoint_away"),
    *("take_the_log_away", "put_an_older_log_back", "put_everything_older_back", "sign_a_smaller_log"),
    *("drop_an_entry", "swap_entries", "insert_an_entry", "call_it_another_log", "drop_a_seal"),
    *("change_the_digests_of_lines", "sign_a_seal_again", "rewrite_the_ledger", "rewrite_the_ledger_and_the_log"),
    *("insert_a_seal", "drop_the_digests_of_lines"),
)
