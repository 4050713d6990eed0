"""Time stamps of RFC 3161 for checkpoints: an authority signs that a tree existed at a time.

`stamps/SIZE` in the log's folder is a stamped checkpoint, and `stamps/SIZE.tsr` is the authority's response. Both are
in the form that `openssl ts -verify` reads. `ship` asks the authority over the network. `verify` only needs the
authority's certificates.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from klamm_spark.errors import LakeError
from klamm_spark.storage.filesystems import SMALL_BYTES, create_durably, read_file
from klamm_spark.tlog.notes import Checkpoint
from klamm_spark.tlog.submit import Answer, UnavailableError, post

STAMPS: Final = "stamps"
_SUFFIX: Final = ".tsr"
_QUERY: Final = "application/timestamp-query"
_OK: Final = 200
_WAIT_S: Final = 60.0


class Authority:
    """The certificates of a time-stamping authority: its root, and those between the root and the certificate that
    signs.
    """

    def __init__(self, path: Path) -> None:
        """Read the certificates. Raises LakeError."""
        try:
            import rfc3161_client
            from cryptography.x509 import load_pem_x509_certificates
        except ImportError as error:
            raise LakeError("time stamps need rfc3161-client: pip install 'klamm[timestamps]'") from error
        self._client = rfc3161_client
        try:
            self._certificates = load_pem_x509_certificates(read_file(path, SMALL_BYTES, may_wait=True))
        except (OSError, ValueError) as error:
            raise LakeError(f"the certificates {path} of the time stamps cannot be read: {error}") from error

    def request(self, data: bytes, send: Callable[[bytes], Answer]) -> bytes:
        """Return the authority's response for `data`. Raises UnavailableError, also if another one has signed it."""
        hashed = self._client.HashAlgorithm.SHA256
        request = self._client.TimestampRequestBuilder(data, hashed).build()
        answer = send(request.as_bytes())
        if answer.status != _OK:
            raise UnavailableError(f"HTTP status {answer.status}")
        try:
            self.time_of(data, answer.body, request.nonce)
        except ValueError as error:
            raise UnavailableError(str(error)) from error
        return answer.body

    def time_of(self, data: bytes, response: bytes, nonce: int | None = None) -> datetime:
        """Return the time at which `data` was stamped. Raises ValueError if this authority has not stamped it."""
        decoded = self._client.decode_timestamp_response(response)
        verifier = self._client.VerifierBuilder(roots=self._certificates, nonce=nonce).build()
        try:
            verifier.verify_message(decoded, data)
        except self._client.VerificationError as error:
            raise ValueError(str(error)) from error
        return decoded.tst_info.gen_time


class Stamper:
    """Asks an authority at a URL for a stamp of a checkpoint, and keeps the stamp in the folder of the log."""

    def __init__(
        self, folder: Path, authority: Authority, url: str, interval_ms: int, wall_s: Callable[[], float] = time.time
    ) -> None:
        self._folder, self._authority, self._url = folder / STAMPS, authority, url
        self._interval_ms, self._wall_s = interval_ms, wall_s
        # The files of a restored copy may have times in the future.
        times_s = (min(path.lstat().st_mtime, wall_s()) for path in self._folder.glob(f"*{_SUFFIX}"))
        self._stamped_s = max(times_s, default=0.0)
        self._tried_s = 0.0

    def stamp(self, checkpoint: Checkpoint) -> None:
        """Get a stamp of a checkpoint and store it, if one is due.

        Raises UnavailableError, and OSError if the disk fails.
        """
        path, now_s = self._folder / str(checkpoint.size), self._wall_s()
        is_early = (now_s - self._stamped_s) * 1000 < self._interval_ms or 0 <= now_s - self._tried_s < _WAIT_S
        # If `ship` is killed between the two writes, only the checkpoint is there. The next stamp of this size replaces
        # it.
        if is_early or path.with_suffix(_SUFFIX).exists():
            return
        self._tried_s = now_s
        note = str(checkpoint).encode()
        response = self._authority.request(note, lambda query: post(self._url, query, _QUERY))
        create_durably(path, note)
        create_durably(path.with_suffix(_SUFFIX), response)
        self._stamped_s = now_s


class Stamp(NamedTuple):
    """A stamped checkpoint with its time and the path of its stamp."""

    path: Path
    checkpoint: Checkpoint
    time: datetime


def read_stamps(folder: Path, authority: Authority, breaks: list[str]) -> Iterator[Stamp]:
    """Yield the stamps in the folder of a log. For each file that is not a stamp, add a sentence to `breaks`."""
    for path in sorted((folder / STAMPS).glob(f"*{_SUFFIX}")):
        try:
            note = read_file(path.with_suffix(""), SMALL_BYTES)
            yield Stamp(path, Checkpoint.parse(note), authority.time_of(note, read_file(path, SMALL_BYTES)))
        except (OSError, ValueError) as error:
            breaks.append(f"the time stamp {path} is none of its checkpoint: {error}")
