"""The command `klamm users`: edits a file of users for the credential store `file`.

It takes no password as an argument, because other users of the machine can see arguments.
"""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from klamm.config import CommandParser
from klamm.runtime import PLATFORM, replace_file
from klamm.sasl import MIN_ITERATIONS, ScramCredential, ScramMechanism
from klamm_sasl.stores.users_file import parse_users, text_of

_SALT_BYTES: Final = 24
_MAX_ITERATIONS: Final = 10_000_000


class UsersError(Exception):
    """Raised for an error in the arguments or the file. The message is printed."""


def main(arguments: list[str]) -> int:
    """Run the command. Return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        run: Callable[[argparse.Namespace], None] = options.run
        run(options)
    except OSError as error:
        print(f"klamm users: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except (UsersError, ValueError) as error:
        print(f"klamm users: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    top = CommandParser(
        prog="klamm users", description="Users in a file, for the credential store `file`.", allow_abbrev=False
    )
    commands: argparse._SubParsersAction[Any] = top.add_subparsers(metavar="COMMAND", required=True)
    file = argparse.ArgumentParser(add_help=False)
    file.add_argument("file", metavar="FILE", type=Path, help="`path` of the credential store `file`")
    user = argparse.ArgumentParser(add_help=False)
    user.add_argument("user", metavar="USER", help="name that the client logs in with")
    mechanisms = argparse.ArgumentParser(add_help=False)
    mechanisms.add_argument(
        "--mechanism",
        dest="mechanisms",
        action="append",
        choices=[mechanism.mechanism_name for mechanism in ScramMechanism],
        help="may be given twice; default: both",
    )
    password = argparse.ArgumentParser(add_help=False)
    password.add_argument("--password-file", metavar="FILE", type=Path, help="its first line is the password")
    password.add_argument(
        "--iterations", metavar="N", type=int, default=MIN_ITERATIONS, help=f"default: {MIN_ITERATIONS}"
    )

    add = commands.add_parser(
        "add", allow_abbrev=False, parents=[file, user, mechanisms, password], help="add a user or change a password"
    )
    add.set_defaults(run=_add)
    listed = commands.add_parser("list", allow_abbrev=False, parents=[file], help="list users and their mechanisms")
    listed.set_defaults(run=_list)
    remove = commands.add_parser(
        "remove", allow_abbrev=False, parents=[file, user, mechanisms], help="remove a user, or some mechanisms"
    )
    remove.set_defaults(run=_remove)
    hashed = commands.add_parser(
        "hash", allow_abbrev=False, parents=[mechanisms, password], help="print verifiers for `users = { … }`"
    )
    hashed.set_defaults(run=_hash)
    return top


def _add(options: argparse.Namespace) -> None:
    _check_user(options.user)
    if options.file.exists():
        # Report an invalid file before the command requests a password.
        _read(options.file)
    credentials = _credentials(options)
    replaced = {credential.mechanism for credential in credentials}
    with _locked(options.file):
        entries = _read(options.file) if options.file.exists() else []
        kept = [(user, one) for user, one in entries if user != options.user or one.mechanism not in replaced]
        _write(options.file, [*kept, *((options.user, credential) for credential in credentials)])


def _list(options: argparse.Namespace) -> None:
    found: dict[str, list[str]] = {}
    for user, credential in _read(options.file):
        found.setdefault(user, []).append(f"{credential.mechanism.mechanism_name}({credential.iterations})")
    for user, mechanisms in sorted(found.items()):
        print(user, *sorted(mechanisms))


def _remove(options: argparse.Namespace) -> None:
    gone = _mechanisms(options)
    with _locked(options.file):
        entries = _read(options.file)
        kept = [(user, one) for user, one in entries if user != options.user or one.mechanism not in gone]
        if len(kept) == len(entries):
            raise UsersError(f'there is no user "{options.user}" in {options.file}')
        _write(options.file, kept)


def _hash(options: argparse.Namespace) -> None:
    print(" ".join(credential.to_text() for credential in _credentials(options)))


def _check_user(user: str) -> None:
    if not user or user != user.strip() or user.startswith("#") or any(char in user for char in ":\r\n\0"):
        raise UsersError("a user's name in a file must not contain a colon, begin with # or have spaces at its ends")


def _mechanisms(options: argparse.Namespace) -> list[ScramMechanism]:
    if options.mechanisms is None:
        return list(ScramMechanism)
    return [ScramMechanism.named(name) for name in dict.fromkeys(options.mechanisms)]


def _credentials(options: argparse.Namespace) -> list[ScramCredential]:
    if not MIN_ITERATIONS <= options.iterations <= _MAX_ITERATIONS:
        raise UsersError(f"iterations must be between {MIN_ITERATIONS} and {_MAX_ITERATIONS}")
    password = _password(options.password_file)
    return [
        ScramCredential.from_password(mechanism, password, os.urandom(_SALT_BYTES), options.iterations)
        for mechanism in _mechanisms(options)
    ]


def _password(file: Path | None) -> str:
    """Return the password from a file, from the terminal (asked twice), or from the first line of standard input."""
    if file is not None:
        text = file.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
    elif sys.stdin.isatty():
        text = getpass.getpass("Password: ")
        if getpass.getpass("Again: ") != text:
            raise UsersError("the passwords differ")
    else:
        text = sys.stdin.readline().rstrip("\r\n")
    if not text:
        raise UsersError("the password is empty")
    return text


def _read(file: Path) -> list[tuple[str, ScramCredential]]:
    try:
        return parse_users(text_of(file.read_bytes()))
    except ValueError as error:
        raise UsersError(f"{file}: {error}") from error


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold a lock on the file's folder, so that one command runs at a time.

    The file itself cannot be locked, because it is replaced.
    """
    if PLATFORM.directory_flags:
        descriptor = PLATFORM.open(file.parent, os.O_RDONLY | PLATFORM.directory_flags, 0)
    else:
        descriptor = PLATFORM.open(file.with_name(f".{file.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        PLATFORM.wait_for_lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def _write(file: Path, entries: Sequence[tuple[str, ScramCredential]]) -> None:
    """Replace the file as a whole. Only its owner may read a new file; an existing file keeps its mode."""
    mode = file.stat().st_mode & 0o777 if file.exists() else 0o600
    lines = "".join(f"{user}:{credential.to_text()}\n" for user, credential in entries)
    # Sync the file, because a power failure could otherwise restore the old one with a removed user.
    replace_file(file, f"# users of klamm: NAME:VERIFIER; see `klamm users --help`\n{lines}".encode(), mode)
