"""The public keys of servers in the lake: `LAKE/keys/FOLDER/KEY_ID.pub`. `ship` copies them from the spool, once.

So an attacker who can write to the spool can add a key there, but cannot replace a key of the lake.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from klamm_spark.lake.layout import Lake
from klamm_spark.spool.layout import node_folders
from klamm_spark.spool.signatures import KeyFileError, PublicKeys, key_id_of, public_files
from klamm_spark.storage.filesystems import SMALL_BYTES, AnyPath, FileSystemError, create_durably, read_file

_FOLDER: Final = "keys"


def remember_keys(spool: AnyPath, lake: Lake, say: Callable[[str], None]) -> None:
    """Copy the keys that the lake lacks. Report each of them, because it may be an attacker's key."""
    for folder in node_folders(spool):
        kept = lake.root / _FOLDER / folder.name
        known = {path.name for path in public_files(kept)}
        for path in public_files(folder):
            try:
                pem = read_file(path, SMALL_BYTES)
                key_id = key_id_of(pem)
            except FileSystemError:
                # The store did not answer. The next start of `ship` tries again.
                raise
            except (OSError, KeyFileError) as error:
                say(str(error) if isinstance(error, OSError) else f"{path}: {error}")
                continue
            if path.name not in known and path.stem == key_id:
                create_durably(kept / path.name, pem)
                which = "another key than before" if known else "the key"
                say(
                    f"seals of {folder.name} are signed with {which}: {key_id}; compare it with that of klamm audit key"
                )


def keys_of(lake: Lake, folder: str, trusted: Collection[str] = (), spool: AnyPath | None = None) -> PublicKeys:
    """Return the keys that the lake has for a folder of the spool, see `PublicKeys`. Raises KeyFileError.

    If ids of keys are `trusted`, keys in that folder of the `spool` count too, because a key's id is a hash of the key.
    """
    files = public_files(lake.root / _FOLDER / folder)
    if trusted and spool is not None:
        files += public_files(spool / folder)
    pems = []
    for path in files:
        pems.append(read_file(path, SMALL_BYTES))
        try:
            key_id_of(pems[-1])
        except KeyFileError as error:
            raise KeyFileError(f"{path}: {error}") from error
    return PublicKeys(pems, trusted)
