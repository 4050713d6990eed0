"""C2SP's signed notes, checkpoints and cosignatures, with Ed25519 keys.

A key is written as a vkey: `NAME+HASH+BASE64`. There are two kinds of keys. A log signs the text of a checkpoint. A
witness signs that text and the time at which this was the largest checkpoint that it had seen.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple, Protocol

from klamm_spark.tlog.merkle import MOST_LEAVES

LOG_KEY: Final = 1
WITNESS_KEY: Final = 4
MAX_NOTE_BYTES: Final = 128 * 1024
"""The most bytes of a note. Later algorithms may have signatures of 5 KiB, and this has room for 16 of them."""
_HASH_BYTES: Final = 4
_ROOT_BYTES: Final = 32
_KEY_BYTES: Final = 32
_TIME_BYTES: Final = 8
_MOST_SECONDS: Final = 1 << 63
_DASH: Final = "\N{EM DASH} "
_CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")
_NAME: Final = re.compile(r"[^\s+]+")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}")


def decode_base64(text: str) -> bytes:
    """Return the bytes of a base64 text. Raises ValueError if it is not in canonical form."""
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("a value is no base64") from error
    if encode_base64(data) != text:
        raise ValueError("a value is no base64")
    return data


def encode_base64(data: bytes) -> str:
    """Return the base64 text of bytes."""
    return base64.b64encode(data).decode("ascii")


def parse_number(text: str) -> int:
    """Return a number of leaves or an index. Raises ValueError."""
    if not _NUMBER.fullmatch(text) or int(text) > MOST_LEAVES:
        raise ValueError(f'"{text[:20]}" is no number of leaves')
    return int(text)


def check_name(name: str) -> str | None:
    """Return the fault of the name of a log or a witness, or None."""
    return None if _NAME.fullmatch(name) and name.isprintable() else "must be a name without spaces and +"


class NoteKey(NamedTuple):
    """The public key of a log or of a witness, with its name."""

    name: str
    kind: int
    public: bytes

    @staticmethod
    def parse(vkey: str) -> NoteKey:
        """Return the key of a vkey. Raises ValueError."""
        name, _, rest = vkey.partition("+")
        hash_text, _, text = rest.partition("+")
        data = decode_base64(text) if text else b""
        key = NoteKey(name, data[0] if data else 0, data[1:])
        if key.kind not in (LOG_KEY, WITNESS_KEY) or len(key.public) != _KEY_BYTES or check_name(name):
            raise ValueError(f'"{vkey}" is no vkey of Ed25519: NAME+HASH+BASE64')
        if key.hash.hex() != hash_text:
            raise ValueError(f'"{vkey}" is no vkey: its hash is not that of its name and key')
        return key

    @property
    def hash(self) -> bytes:
        """Return the hash with which each signature of this key begins."""
        return hashlib.sha256(self.name.encode() + b"\n" + bytes([self.kind]) + self.public).digest()[:_HASH_BYTES]

    def __str__(self) -> str:
        return f"{self.name}+{self.hash.hex()}+{encode_base64(bytes([self.kind]) + self.public)}"

    def time_of(self, text: str, signature: bytes) -> int:
        """Return the time of a cosignature, in seconds since 1970; 0 for a log's signature. Raises ValueError."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        time_s = 0
        if self.kind == WITNESS_KEY:
            time_s = int.from_bytes(signature[:_TIME_BYTES], "big")
            text, signature = _cosigned(text, time_s), signature[_TIME_BYTES:]
        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(signature, text.encode())
        except InvalidSignature as error:
            raise ValueError(f"the signature of {self.name} is wrong") from error
        if time_s >= _MOST_SECONDS:
            raise ValueError(f"the time of {self.name} is none")
        return time_s


def _cosigned(text: str, time_s: int) -> str:
    return f"cosignature/v1\ntime {time_s}\n{text}"


class Signer(Protocol):
    """A private key of Ed25519."""

    public_bytes: bytes

    def sign(self, data: bytes) -> str:
        """Return the signature, in base64."""
        ...


class NoteSigner:
    """Signs the texts of checkpoints, as a log or as a witness."""

    def __init__(self, signer: Signer, name: str, kind: int) -> None:
        self._signer = signer
        self.key = NoteKey(name, kind, signer.public_bytes)

    def line(self, text: str, time_s: int = 0) -> str:
        """Return a line with the signature. The signature of a witness contains the time."""
        signature = b""
        if self.key.kind == WITNESS_KEY:
            text, signature = _cosigned(text, time_s), time_s.to_bytes(_TIME_BYTES, "big")
        signature += decode_base64(self._signer.sign(text.encode()))
        return f"{_DASH}{self.key.name} {encode_base64(self.key.hash + signature)}\n"


class _Line(NamedTuple):
    """A signature of a note; `text` is the whole line."""

    name: str
    hash: bytes
    signature: bytes
    text: str


def parse_lines(text: str) -> tuple[_Line, ...]:
    """Return the signatures in these lines. Raises ValueError."""
    lines = []
    for line in text.splitlines(keepends=True):
        name, _, signature = line.removeprefix(_DASH).removesuffix("\n").partition(" ")
        data = decode_base64(signature)
        if not line.startswith(_DASH) or not line.endswith("\n") or check_name(name) or len(data) <= _HASH_BYTES:
            raise ValueError("a line is no signature")
        lines.append(_Line(name, data[:_HASH_BYTES], data[_HASH_BYTES:], line))
    return tuple(lines)


@dataclass(frozen=True)
class Checkpoint:
    """The size and the root of a log at one time. `more` has extension lines, and `lines` has the signatures."""

    origin: str
    size: int
    root: bytes
    more: str = ""
    lines: tuple[_Line, ...] = field(default=(), compare=False)

    @cached_property
    def text(self) -> str:
        """Return the text that is signed."""
        return f"{self.origin}\n{self.size}\n{encode_base64(self.root)}\n{self.more}"

    def __str__(self) -> str:
        return f"{self.text}\n{''.join(line.text for line in self.lines)}"

    @staticmethod
    def parse(note: bytes) -> Checkpoint:
        """Return the checkpoint of a signed note, without a check of its signatures. Raises ValueError."""
        if len(note) > MAX_NOTE_BYTES:
            raise ValueError("a checkpoint is too long")
        text, blank, signatures = note.decode().rpartition("\n\n")
        if not blank or not signatures or _CONTROL.search(note.decode()):
            raise ValueError("it is no checkpoint: it has no text and signatures")
        origin, size, root, *more = [*text.split("\n"), "", ""][: max(3, text.count("\n") + 1)]
        if not origin or not all(more) or len(decode_base64(root)) != _ROOT_BYTES:
            raise ValueError("it is no checkpoint: three lines are its origin, size and root")
        extension = "".join(f"{line}\n" for line in more)
        return Checkpoint(origin, parse_number(size), decode_base64(root), extension, parse_lines(signatures))

    def time_of(self, key: NoteKey) -> int | None:
        """Return the newest time of the key's signatures, by `NoteKey.time_of`; None if the key has not signed.

        Raises ValueError.
        """
        times = [key.time_of(self.text, line.signature) for line in self.lines if line[:2] == (key.name, key.hash)]
        return max(times, default=None)

    def signed(self, lines: str) -> Checkpoint:
        """Return the checkpoint with these further signatures. They replace earlier signatures of the same keys.

        Raises ValueError.
        """
        new = parse_lines(lines)
        keys = {line[:2] for line in new}
        kept = tuple(line for line in self.lines if line[:2] not in keys)
        return Checkpoint(self.origin, self.size, self.root, self.more, kept + new)
