"""A lake whose seals are in a transparency log, with its keys and a witness, made without Spark."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from klamm_spark.lake.anchors import read_anchors
from klamm_spark.lake.appends import read_shipped
from klamm_spark.lake.layout import Lake
from klamm_spark.lake.log_check import LogFindings, check_log
from klamm_spark.lake.seal_log import TransparencyLog
from klamm_spark.lake.seals import Ledger
from klamm_spark.settings.spark import SparkSettings
from klamm_spark.spool.layout import SEAL_SUFFIX, Seal
from klamm_spark.spool.signatures import SealSigner, write_key
from klamm_spark.tlog.notes import LOG_KEY, WITNESS_KEY, NoteKey, NoteSigner
from klamm_spark.tlog.submit import Answer, Submitter
from klamm_spark.tlog.witness import Witness, WitnessServer
from tests.audit_samples import sample_events, write_sample_spool

ORIGIN = "example.com/lake"
WITNESS = "example.com/witness"
NOW_S = 1_800_000_000


def signer_in(folder: Path, name: str) -> SealSigner:
    path = folder / name
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_key(path)
    return SealSigner(path)


class LoggedLake:
    """The lake and everything around it.

    `folder` has the spool, the lake, its log, the keys, and the files that the witness and an auditor keep.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.lake = folder, Lake(folder / "lake")
        self.log_folder, self.kept = folder / "lake" / "tlog", folder / "kept"
        self.said: list[str] = []
        self.next_seq = 0
        self.server = signer_in(folder / "keys", "server")
        self.log_signer = NoteSigner(signer_in(folder / "keys", "log"), ORIGIN, LOG_KEY)
        self.witness_key = NoteSigner(signer_in(folder / "keys", "witness"), WITNESS, WITNESS_KEY).key
        self.witness = self.new_witness()

    def new_witness(self) -> Witness:
        """Return the witness as it is after a start."""
        if hasattr(self, "witness"):
            self.witness.close()
        signer = NoteSigner(signer_in(self.folder / "keys", "witness"), WITNESS, WITNESS_KEY)
        return Witness(signer, self.folder / "witness", [self.log_signer.key], lambda: NOW_S)

    def post(self, url: str, body: bytes) -> Answer:
        """Send a request to the witness without a socket."""
        response = self.witness.add_checkpoint(body)
        return Answer(response.status, response.body.encode())

    def open(self, **more: Any) -> TransparencyLog:
        """Open the log as `ship` does at its start."""
        witnesses = [Submitter(self.witness_key, "http://witness", self.post)]
        log = TransparencyLog(self.log_folder, self.log_signer, witnesses, self.said.append, **more)
        log.catch_up(self.lake)
        return log

    def write(self, segments: int = 1, *, events: int = 10, final: bool = False, **more: Any) -> list[Path]:
        """Let the server write and sign segments. Return their paths."""
        sample = sample_events(segments * events, first_seq=self.next_seq, **more)
        self.next_seq += segments * events
        paths = write_sample_spool(self.folder / "spool", sample, events_per_segment=events, final=final)
        for path in paths:
            seal = path.with_suffix(SEAL_SUFFIX)
            seal.write_bytes(self.server.signed(Seal.read(seal)).to_json())
        (self.folder / "spool" / "node-1" / f"{self.server.key_id}.pub").write_bytes(self.server.public_pem)
        return paths

    def ship(self, paths: Iterable[Path], **more: Any) -> TransparencyLog:
        """Add segments to the ledger and to the log, all at once."""
        ledger = Ledger(self.folder / "spool", self.lake, self.said.append)
        log = self.open(**more)
        ledger.on_rows = log.append
        ledger.add([each for path in paths if (each := read_shipped(ledger, path)) is not None])
        return log

    def grow(self, segments: int = 1, **more: Any) -> TransparencyLog:
        """Write segments and ship them."""
        return self.ship(self.write(segments, **more))

    def keep(self, name: str = "checkpoint") -> Path:
        """Keep the present checkpoint, as an auditor does."""
        self.kept.mkdir(exist_ok=True)
        return Path(shutil.copy(self.log_folder / "checkpoint", self.kept / name))

    def check(self, *kept: Path, vkeys: Sequence[NoteKey] | None = None, anchors: Path | None = None) -> LogFindings:
        """Return the findings of `verify` with only the witness's key."""
        keys = (self.witness_key,) if vkeys is None else vkeys
        settings = SparkSettings(lake=self.folder / "lake", vkeys=tuple(map(str, keys)))
        return check_log(self.lake, settings, kept, None if anchors is None else read_anchors(anchors))


@contextmanager
def served(witness: Witness, deadline_s: float = 600.0) -> Iterator[str]:
    """Serve a program on a free port during the block. Yield its URL."""
    ready, found = threading.Event(), dict[str, Any]()

    async def serve() -> None:
        server = await WitnessServer(witness, deadline_s).start("127.0.0.1", 0)
        found.update(port=server.sockets[0].getsockname()[1], loop=asyncio.get_running_loop(), stop=asyncio.Event())
        ready.set()
        await found["stop"].wait()
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(60)
        yield f"http://127.0.0.1:{found['port']}"
    finally:
        found["loop"].call_soon_threadsafe(found["stop"].set)
        thread.join()
