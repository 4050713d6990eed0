"""`Witness` and its server, by C2SP's `tlog-witness`: it cosigns a checkpoint that extends the one it cosigned last.

It keeps the newest checkpoint in one file per log, and writes the file durably before it answers. The event loop of
`klamm audit witness` does everything on one thread, so no second request for a log comes between the comparison and the
write. Callers are not authenticated, because only a log can sign its checkpoints.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from klamm import RateLimitedLog, escape_control_characters
from klamm_spark.errors import LakeError
from klamm_spark.storage.files import SpoolFiles
from klamm_spark.storage.filesystems import SMALL_BYTES, create_durably, read_file
from klamm_spark.tlog.merkle import EMPTY_ROOT, MOST_HASHES, ProofError, check_consistency
from klamm_spark.tlog.notes import (
    MAX_NOTE_BYTES,
    Checkpoint,
    NoteKey,
    NoteSigner,
    decode_base64,
    parse_number,
)

log = logging.getLogger("klamm.audit.witness")

MAX_BODY_BYTES: Final = MAX_NOTE_BYTES + 8 * 1024
MAX_HEAD_BYTES: Final = 8 * 1024
CONNECTIONS: Final = 64
DEADLINE_S: Final = 10.0
"""The time for a whole connection: to receive the request and to send the answer."""
_LOCK: Final = ".lock"
_CONFLICT: Final = 409
_LINES_A_MINUTE: Final = 20
"""The most log lines per minute and address."""
_SIZE: Final = "text/x.tlog.size"
_TEXT: Final = "text/plain; charset=utf-8"
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    411: "Length Required",
    413: "Content Too Large",
    422: "Unprocessable Content",
    500: "Internal Server Error",
}


class Response(NamedTuple):
    """An HTTP response; `reason` is for the log."""

    status: int
    body: str = ""
    content_type: str = _TEXT
    reason: str = ""


class _Request(NamedTuple):
    old: int
    proof: list[bytes]
    checkpoint: Checkpoint


def parse_request(body: bytes) -> _Request:
    """Read the body of `add-checkpoint`. Raises ValueError."""
    head, blank, note = body.partition(b"\n\n")
    old, *hashes = head.decode("ascii").split("\n")
    if not blank or not old.startswith("old ") or len(hashes) > MOST_HASHES:
        raise ValueError("it is not an old size, a proof and a checkpoint, or the proof is too long")
    return _Request(parse_number(old.removeprefix("old ")), list(map(decode_base64, hashes)), Checkpoint.parse(note))


class Witness:
    """The state of a witness. Not thread-safe: only one thread at a time may call `add_checkpoint`."""

    def __init__(self, signer: NoteSigner, folder: Path, logs: Sequence[NoteKey], clock_s: Callable[[], float]) -> None:
        """Read the newest checkpoint of each log.

        Raises LakeError if a stored checkpoint cannot be read, because without it the witness would cosign anything.
        """
        self._signer, self._folder, self._clock_s = signer, folder, clock_s
        self._logs = {key.name: key for key in logs}
        self._latest: dict[str, Checkpoint] = {}
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self._lock = SpoolFiles().lock(folder / _LOCK)
        except BlockingIOError as error:
            raise LakeError(f"another process is the witness of {folder}") from error
        for key in logs:
            try:
                found = Checkpoint.parse(read_file(self._file(key.name), SMALL_BYTES))
                if found.origin != key.name or found.time_of(key) is None:
                    raise ValueError(f"it is of {found.origin}, or not signed with {key}")
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                raise LakeError(f"{self._file(key.name)} holds no usable cosigned checkpoint: {error}") from error
            self._latest[key.name] = found

    @property
    def key(self) -> NoteKey:
        """Return the public key of the witness."""
        return self._signer.key

    def close(self) -> None:
        """Release the lock, so that another process can be the witness."""
        SpoolFiles().close(self._lock)

    def _file(self, origin: str) -> Path:
        return self._folder / hashlib.sha256(origin.encode()).hexdigest()

    def add_checkpoint(self, body: bytes) -> Response:
        """Cosign a checkpoint, or return a refusal. Raises OSError if it cannot be stored."""
        try:
            request = parse_request(body)
        except ValueError as error:
            return Response(400, reason=str(error))
        checkpoint = request.checkpoint
        key = self._logs.get(checkpoint.origin)
        if key is None:
            return Response(404, reason=f"no log {checkpoint.origin} is known")
        try:
            if checkpoint.time_of(key) is None:
                return Response(403, reason=f"{checkpoint.origin} has not signed it")
        except ValueError as error:
            return Response(403, reason=str(error))
        latest = self._latest.get(checkpoint.origin, Checkpoint(checkpoint.origin, 0, EMPTY_ROOT))
        problem = _problem(request, latest)
        if problem is not None:
            return problem
        create_durably(self._file(checkpoint.origin), str(checkpoint).encode())
        self._latest[checkpoint.origin] = checkpoint
        return Response(200, self._signer.line(checkpoint.text, int(self._clock_s())))


def _problem(request: _Request, latest: Checkpoint) -> Response | None:
    """Return the refusal of a request that does not extend the last cosigned checkpoint; None if the request extends
    it.
    """
    new, origin = request.checkpoint, request.checkpoint.origin
    if request.old > new.size:
        return Response(400, reason=f"{origin}: the old size is above the new one")
    conflict = Response(_CONFLICT, f"{latest.size}\n", _SIZE)
    if request.old != latest.size:
        return conflict._replace(reason=f"{origin}: {latest.size:,} entries are cosigned, not {request.old:,}")
    if new.size == latest.size and new.root != latest.root:
        return conflict._replace(reason=f"{origin} is forked: it has signed two trees of {new.size:,} entries")
    if new.size == latest.size or not latest.size:
        return Response(422, reason=f"{origin}: the proof must be empty") if request.proof else None
    try:
        check_consistency(latest.size, new.size, latest.root, new.root, request.proof)
    except ProofError as error:
        return Response(422, reason=f"{origin} is forked, or its proof is wrong: {error}")
    return None


async def _read_request(reader: asyncio.StreamReader) -> bytes | Response:
    """Return the body of a request, or a refusal if the request is unacceptable."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, _, target = head[0].rpartition(" ")[0].partition(" ")
    if target.rpartition("/")[2] != "add-checkpoint":
        return Response(404, reason=f"{target[:80]} is not add-checkpoint")
    if method != "POST":
        return Response(405, reason=f"the method is {method[:20]}")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    length = headers.get("content-length", "")
    if not length.isascii() or not length.isdigit() or "transfer-encoding" in headers:
        return Response(411, reason="it has no length")
    if len(length) > 9 or int(length) > MAX_BODY_BYTES:
        return Response(413, reason=f"it has {length[:20]} bytes")
    return await reader.readexactly(int(length))


def _later(delay_ms: float, callback: Callable[[], object]) -> object:
    return asyncio.get_running_loop().call_later(delay_ms / 1000, callback)


class WitnessServer:
    """Answers requests. A connection has one request and ten seconds. If there are too many, the oldest is closed."""

    def __init__(self, witness: Witness, deadline_s: float = DEADLINE_S) -> None:
        self._witness = witness
        self._deadline_s = deadline_s
        self._writers: dict[asyncio.StreamWriter, None] = {}
        self._lines = RateLimitedLog(log, _later, burst=_LINES_A_MINUTE)

    async def start(self, host: str, port: int) -> asyncio.Server:
        """Listen. Raises OSError."""
        return await asyncio.start_server(self._serve, host, port, limit=MAX_HEAD_BYTES)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._writers) >= CONNECTIONS:
            next(iter(self._writers)).transport.abort()
        self._writers[writer] = None
        peer = str((writer.get_extra_info("peername") or ("?",))[0])
        try:
            async with asyncio.timeout(self._deadline_s):
                response = await self._answer(reader)
                if response.reason:
                    self._say(peer, f"{response.status}: {response.reason}")
                body = response.body.encode()
                head = (
                    f"HTTP/1.1 {response.status} {_REASONS[response.status]}",
                    f"Content-Type: {response.content_type}",
                    f"Content-Length: {len(body)}",
                    "Connection: close\r\n\r\n",
                )
                writer.write("\r\n".join(head).encode() + body)
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            self._say(peer, f"closed: {str(error) or type(error).__name__}")
            writer.transport.abort()
        finally:
            del self._writers[writer]
            writer.close()

    def _say(self, peer: str, reason: str) -> None:
        self._lines.log(peer, logging.WARNING, "%s: %s", peer, escape_control_characters(reason))

    async def _answer(self, reader: asyncio.StreamReader) -> Response:
        body = await _read_request(reader)
        if isinstance(body, Response):
            return body
        try:
            return self._witness.add_checkpoint(body)
        except OSError as error:
            return Response(500, reason=f"the checkpoint cannot be stored: {error}")
