"""Signatures of seals (Ed25519, RFC 8032): the server's key signs them, and `ship` keeps its public key in the lake.

A signature covers the whole seal with its place in the hash chain. So it also covers all segments before it. A person
who has the spool, but not the key, can cut off its end, but cannot change anything before that.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from klamm.runtime import PLATFORM
from klamm_spark.spool.layout import Seal
from klamm_spark.storage.filesystems import AnyPath

PUBLIC_SUFFIX: Final = ".pub"
"""The suffix of a file with a public key in PEM, in a node's folder of the spool and in `keys` of the lake."""
_ID_DIGITS: Final = 32


class KeyFileError(ValueError):
    """A file has no key for signatures. The message gives the reason."""


class SealSigner:
    """Signs seals with the private key of a file."""

    def __init__(self, path: Path) -> None:
        """Read the private key. Raises KeyFileError."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        data = read_private(path)
        try:
            key = load_pem_private_key(data, None)
        except (ValueError, TypeError) as error:
            raise KeyFileError(f"{path} is no private key in PEM without a password") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise KeyFileError(f"{path} is no Ed25519 key: make one with klamm audit key FILE")
        self._key = key
        self.public_pem = _public_pem(key.public_key())
        self.public_bytes = key.public_key().public_bytes_raw()
        self.key_id = key_id_of(self.public_pem)

    def signed(self, seal: Seal) -> Seal:
        """Return the seal with its signature."""
        seal = replace(seal, key_id=self.key_id, signature="")
        return replace(seal, signature=self.sign(seal.to_json()))

    def sign(self, data: bytes) -> str:
        """Return the signature of the data, in base64."""
        return base64.b64encode(self._key.sign(data)).decode("ascii")


class PublicKeys:
    """The public keys that may sign a node's seals. If key ids are `trusted`, only these keys may.

    The object is true if a seal must be signed: if there is a key, or if ids are trusted.
    """

    def __init__(self, pems: Iterable[bytes], trusted: Collection[str] = ()) -> None:
        """Read the public keys. Raises KeyFileError."""
        self._keys = {key_id_of(pem): _public_key(pem) for pem in pems}
        self._trusted = trusted

    def __bool__(self) -> bool:
        return bool(self._keys or self._trusted)

    def problem(self, seal: Seal) -> str | None:
        """Return the fault of a seal's signature, or None. Without keys, no seal needs a signature."""
        if not seal.signature:
            return "its seal is not signed" if self else None
        if self._trusted and seal.key_id not in self._trusted:
            return f"its seal is signed with the key {seal.key_id}, which is not trusted"
        if seal.key_id not in self._keys:
            return f"its seal is signed with the key {seal.key_id}, which is not in the lake"
        if not self.has_signed(seal.key_id, seal.signature, replace(seal, signature="").to_json()):
            return "the signature of its seal is wrong: the seal was changed"
        return None

    def has_signed(self, key_id: str, signature: str, data: bytes) -> bool:
        """Return True if `signature` is a signature of the data by the key `key_id`, and this key may sign."""
        from cryptography.exceptions import InvalidSignature

        if self._trusted and key_id not in self._trusted:
            return False
        try:
            self._keys[key_id].verify(base64.b64decode(signature, validate=True), data)
        except (KeyError, InvalidSignature, binascii.Error):
            return False
        return True


def read_private(path: Path) -> bytes:
    """Return the content of a file that only its owner can read. Raises KeyFileError."""
    try:
        data, mode = path.read_bytes(), path.stat().st_mode
    except OSError as error:
        raise KeyFileError(f"{path}: {error.strerror}") from error
    if mode & 0o077:
        raise KeyFileError(f"{path} can be read by others: its mode is {mode & 0o777:04o}, and must be 0600")
    return data


def write_key(path: Path) -> str:
    """Write a new private key, mode 0600, to a file that does not exist yet. Return the key's id. Raises OSError."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = Ed25519PrivateKey.generate()
    descriptor = PLATFORM.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
            file.flush()
            PLATFORM.sync(descriptor)
    except OSError:
        # A part of a key is useless, and the file would stop the next attempt.
        path.unlink(missing_ok=True)
        raise
    return key_id_of(_public_pem(key.public_key()))


def key_id_of(public_pem: bytes) -> str:
    """Return the first digits of the SHA-256 of a public key's 32 bytes. Raises KeyFileError."""
    return hashlib.sha256(_public_key(public_pem).public_bytes_raw()).hexdigest()[:_ID_DIGITS]


def public_files(folder: AnyPath) -> list[Any]:
    """Return the files with public keys in a folder. The folder may be missing."""
    return sorted(path for path in folder.glob(f"*{PUBLIC_SUFFIX}") if path.name.endswith(PUBLIC_SUFFIX))


def _public_pem(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    pem: bytes = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem


def _public_key(pem: bytes) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(pem)
    except ValueError as error:
        raise KeyFileError("no public key in PEM") from error
    if not isinstance(key, Ed25519PublicKey):
        raise KeyFileError("not the public key of an Ed25519 key")
    return key
