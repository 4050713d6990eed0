"""`klamm audit witness`, `prove` and `check`: the commands of the transparency log. None of them starts a JVM.

`witness` serves requests until a signal; `check` reads only the files on its command line.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from klamm.config import format_host_port, parse_host_port
from klamm_spark.errors import LakeError
from klamm_spark.lake.log_entries import Entry, check_event, event_proof, times_of
from klamm_spark.settings.spark import Pipeline
from klamm_spark.spool.layout import line_digest
from klamm_spark.spool.signatures import SealSigner
from klamm_spark.tlog.merkle import ProofError, check_consistency
from klamm_spark.tlog.notes import WITNESS_KEY, Checkpoint, NoteKey, NoteSigner, check_name
from klamm_spark.tlog.submit import request_of
from klamm_spark.tlog.tiles import Tiles

COMMANDS: Final = ("witness", "prove", "check")
EXIT_NOT_PROVEN: Final = 1


def add_commands(commands: Any, lake: list[argparse.ArgumentParser]) -> None:
    """Add the subcommands. `lake` has the arguments for the place of the lake."""
    witness = commands.add_parser("witness", help="cosign checkpoints of logs, and refuse rollbacks and forks")
    witness.add_argument("--key", metavar="FILE", type=Path, required=True, help="a key of klamm audit key")
    witness.add_argument("--name", required=True, type=_name, help="the witness's name, e.g. example.com/witness")
    witness.add_argument(
        "--folder", metavar="DIR", type=Path, required=True, help="where it keeps what it has cosigned"
    )
    witness.add_argument(
        "--log", metavar="VKEY", dest="logs", type=_key, action="append", required=True, help="a log; may be repeated"
    )
    witness.add_argument(
        "--bind", metavar="HOST:PORT", type=_bind, default=("127.0.0.1", 8380), help="default: 127.0.0.1:8380"
    )
    prove = commands.add_parser("prove", parents=lake, help="print the proof that an event is in the lake's log")
    what = prove.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--line", metavar="FILE", type=Path, help="the event's line, as in the spool; - is standard input"
    )
    what.add_argument(
        "--since", metavar="FILE", type=Path, help="a checkpoint: prove that the log has only grown since"
    )
    check = commands.add_parser("check", help="check a proof of klamm audit prove, without the lake")
    check.add_argument("proof", metavar="PROOF", type=Path)
    check.add_argument(
        "--vkey", metavar="VKEY", dest="keys", type=_key, action="append", required=True, help="who must have signed"
    )
    of = check.add_mutually_exclusive_group(required=True)
    of.add_argument("--line", metavar="FILE", type=Path, help="the event's line; - is standard input")
    of.add_argument("--since", metavar="FILE", type=Path, help="the checkpoint that the log must begin with")


def _key(text: str) -> NoteKey:
    try:
        return NoteKey.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _bind(text: str) -> tuple[str, int]:
    try:
        return parse_host_port(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _name(text: str) -> str:
    problem = check_name(text)
    if problem is not None:
        raise argparse.ArgumentTypeError(problem)
    return text


def run(options: argparse.Namespace, pipeline: Pipeline | None, say: Callable[[str], None]) -> int:
    """Run one of `COMMANDS`. Raises LakeError, KeyFileError."""
    if options.command == "witness":
        return _witness(options, say)
    try:
        if options.command == "check":
            return _check(options, say)
        assert pipeline is not None
        print(_proof(options, pipeline), end="")
    except (OSError, ValueError) as error:
        raise LakeError(str(error)) from error
    return 0


def _witness(options: argparse.Namespace, say: Callable[[str], None]) -> int:
    import asyncio

    from klamm_spark.tlog.witness import Witness, WitnessServer

    async def serve() -> None:
        server = await WitnessServer(witness).start(host, port)
        say(f"the witness {witness.key} listens on {format_host_port(host, server.sockets[0].getsockname()[1])}")
        # This waits until a signal. `serve_forever` would wait for open connections as well, from Python 3.12 on.
        await asyncio.Event().wait()

    host, port = options.bind
    signer = NoteSigner(SealSigner(options.key), options.name, WITNESS_KEY)
    witness = Witness(signer, options.folder, options.logs, time.time)
    try:
        asyncio.run(serve())
    except OSError as error:
        raise LakeError(f"{format_host_port(host, port)}: {error.strerror}") from error
    finally:
        witness.close()
    return 0


def _read_line(path: Path) -> bytes:
    data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    return data.removesuffix(b"\n")


def _check(options: argparse.Namespace, say: Callable[[str], None]) -> int:
    """Check a proof, print the fact that it proves, and return the exit code. Raises OSError, ValueError."""
    proof = options.proof.read_bytes()
    try:
        if options.line is not None:
            proven = check_event(_read_line(options.line), proof, options.keys)
            checkpoint, times = proven.checkpoint, proven.times_s
            said = f"the event is in {proven.entry}"
        else:
            old = Checkpoint.parse(options.since.read_bytes())
            checkpoint, times = _check_since(old, proof, options.keys)
            said = f"the log has only grown since it had {old.size:,} entries"
    except ProofError as error:
        say(f"not proven: {error}")
        return EXIT_NOT_PROVEN
    at = ", ".join(datetime.fromtimestamp(each, UTC).isoformat() for each in times)
    print(f"{said}: {checkpoint.origin}, {checkpoint.size:,} entries" + (f", cosigned {at}" if at else ""))
    return 0


def _check_since(old: Checkpoint, proof: bytes, keys: list[NoteKey]) -> tuple[Checkpoint, list[int]]:
    from klamm_spark.tlog.witness import parse_request

    request = parse_request(proof)
    new = request.checkpoint
    if old.origin != new.origin:
        raise ProofError(f"they are of two logs, {old.origin} and {new.origin}")
    check_consistency(old.size, new.size, old.root, new.root, request.proof)
    return new, times_of(new, keys)


def _proof(options: argparse.Namespace, pipeline: Pipeline) -> str:
    """Return the requested proof. Raises LakeError, OSError, ValueError."""
    from klamm_spark.lake.layout import Lake
    from klamm_spark.lake.seal_log import CHECKPOINT, log_folder
    from klamm_spark.lake.seals import line_digests

    folder = log_folder(pipeline.settings)
    checkpoint = Checkpoint.parse((folder / CHECKPOINT).read_bytes())
    tiles = Tiles(folder, checkpoint.size)
    if options.since is not None:
        old = Checkpoint.parse(options.since.read_bytes())
        if not 0 < old.size <= checkpoint.size:
            raise LakeError(f"the log has {checkpoint.size:,} entries, and {options.since} {old.size:,}")
        return request_of(old.size, tiles.tree.consistency(old.size, checkpoint.size), checkpoint).decode()
    line = _read_line(options.line)
    digest = line_digest(line)
    index, entry = _entry_of(line, tiles)
    for several in line_digests(Lake.of(pipeline.settings), [entry.segment])[entry.segment]:
        if digest in several:
            return event_proof(entry, several.index(digest), "".join(several), tiles.tree, index, checkpoint)
    raise LakeError(f"the line is not one of {entry}")


def _entry_of(line: bytes, tiles: Tiles) -> tuple[int, Entry]:
    """Return the number and the entry of the segment that must have an event. Raises LakeError, ValueError."""
    event = json.loads(line)
    if not isinstance(event, dict) or not isinstance(event.get("seq"), int):
        raise LakeError("the line is no event")
    for index, data in enumerate(tiles.entries()):
        entry = Entry.parse(data)
        boot, first_seq = entry.boot_and_first
        is_of_boot = (entry.node, boot) == (event.get("node"), event.get("boot"))
        if is_of_boot and first_seq <= event["seq"] <= entry.last_seq:
            return index, entry
    raise LakeError(f"no entry of the log has {event.get('event_id')}")
