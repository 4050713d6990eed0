"""`Submitter`: asks a witness for its cosignature, by C2SP's `tlog-witness`. `ship` calls it after it has grown the
log.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from klamm_spark.tlog.merkle import Tree
from klamm_spark.tlog.notes import WITNESS_KEY, Checkpoint, NoteKey, encode_base64, parse_lines, parse_number

_TIMEOUT_S: Final = 10.0
_MAX_ANSWER_BYTES: Final = 64 * 1024
_OK: Final = 200
_CONFLICT: Final = 409
_UNPROVEN: Final = 422


class UnavailableError(Exception):
    """The witness or the authority has not answered, or its answer is unusable. `ship` asks again later."""


class RefusedError(Exception):
    """The witness has cosigned a checkpoint that this log does not extend."""


class Answer(NamedTuple):
    """The status and the body of an HTTP response."""

    status: int
    body: bytes


Post = Callable[[str, bytes], Answer]
"""Posts a body to a URL. Raises UnavailableError."""


def post(
    url: str,
    body: bytes,
    content_type: str = "application/octet-stream",
    monotonic_s: Callable[[], float] = time.monotonic,
) -> Answer:
    """Post a body to a URL, and return the answer.

    The whole answer must come within ten seconds. A redirection is not followed.
    """
    import ssl

    parts = urlsplit(url)
    host, is_tls = parts.hostname or "", parts.scheme == "https"
    head = f"POST {parts.path or '/'} HTTP/1.0\r\nHost: {parts.netloc}\r\nContent-Type: {content_type}\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    until_s, data = monotonic_s() + _TIMEOUT_S, b""
    try:
        sock = socket.create_connection((host, parts.port or (443 if is_tls else 80)), _TIMEOUT_S)
        with ssl.create_default_context().wrap_socket(sock, server_hostname=host) if is_tls else sock as sock:
            sock.sendall(head.encode() + body)
            while len(data) < _MAX_ANSWER_BYTES and (piece := sock.recv(_MAX_ANSWER_BYTES)):
                data += piece
                left_s = until_s - monotonic_s()
                if left_s <= 0:
                    raise TimeoutError("no whole answer in ten seconds")
                sock.settimeout(left_s)
        answer = data.partition(b"\r\n\r\n")
        return Answer(int(answer[0].split(b" ", 2)[1]), answer[2])
    except (OSError, ValueError, IndexError) as error:
        raise UnavailableError(str(error) or "no answer") from error


def check_witness(text: str) -> str | None:
    """Return the fault of a witness in the settings, or None."""
    vkey, _, url = text.partition(" ")
    try:
        is_witness = NoteKey.parse(vkey).kind == WITNESS_KEY
    except ValueError as error:
        return str(error)
    if not is_witness or urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        return f'"{text}" must be the vkey of a witness, a space, and its URL'
    return None


def request_of(old: int, proof: list[bytes], checkpoint: Checkpoint) -> bytes:
    """Return the body of the request to a witness."""
    return "\n".join((f"old {old}", *map(encode_base64, proof), "", str(checkpoint))).encode()


class Submitter:
    """A witness at a URL. It remembers the size that the witness has cosigned last."""

    def __init__(self, key: NoteKey, url: str, post: Post = post) -> None:
        self.key = key
        self._url = f"{url.rstrip('/')}/add-checkpoint"
        self._post = post
        self._size = 0

    @staticmethod
    def of(text: str) -> Submitter:
        """Return the witness of a text that `check_witness` accepts."""
        vkey, _, url = text.partition(" ")
        return Submitter(NoteKey.parse(vkey), url)

    def cosign(self, checkpoint: Checkpoint, tree: Tree) -> str:
        """Return the line with the cosignature. Raises UnavailableError, RefusedError."""
        size = min(self._size, checkpoint.size)
        answer = self._ask(size, checkpoint, tree)
        if answer.status == _CONFLICT:
            before, size = size, self._conflict(answer)
            if size > checkpoint.size:
                raise RefusedError(
                    f"it has cosigned {size:,} entries, and the log has {checkpoint.size:,}: it was rolled back"
                )
            if size == before:
                raise RefusedError(f"it has cosigned other {size:,} entries: the log was forked or rewritten")
            answer = self._ask(size, checkpoint, tree)
        if answer.status in (_CONFLICT, _UNPROVEN):
            raise RefusedError(
                f"it has cosigned {size:,} entries that the log does not begin with: it was forked or rewritten"
            )
        if answer.status != _OK:
            raise UnavailableError(f"HTTP status {answer.status}")
        self._size = checkpoint.size
        return self._own_line(answer, checkpoint)

    def _ask(self, size: int, checkpoint: Checkpoint, tree: Tree) -> Answer:
        proof = tree.consistency(size, checkpoint.size)
        return self._post(self._url, request_of(size, proof, checkpoint))

    @staticmethod
    def _conflict(answer: Answer) -> int:
        try:
            return parse_number(answer.body.decode("ascii").removesuffix("\n"))
        except ValueError as error:
            raise UnavailableError("it does not say which size it has cosigned") from error

    def _own_line(self, answer: Answer, checkpoint: Checkpoint) -> str:
        try:
            lines = [line for line in parse_lines(answer.body.decode()) if line[:2] == (self.key.name, self.key.hash)]
            for line in lines[:1]:
                self.key.time_of(checkpoint.text, line.signature)
                return line.text
        except ValueError as error:
            raise UnavailableError(f"its answer cannot be read: {error}") from error
        raise UnavailableError("its answer has no cosignature of its key")
