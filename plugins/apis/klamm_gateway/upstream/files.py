"""The files that the settings of a gateway name, and checks that find errors in them before the start. `Gateway` reads
them at the start and at each reload.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klamm import ConfigError, setting
from klamm.config import check_table, load_settings, read_tables


def read_password(path: Path) -> str:
    """Return the first line of a file. Raises OSError, and ValueError for an invalid password; the error does not quote
    it.
    """
    try:
        password = path.read_bytes().partition(b"\n")[0].rstrip(b"\r").decode()
    except UnicodeDecodeError as error:
        raise ValueError("is not UTF-8") from error
    if not password:
        raise ValueError("its first line, the password, is empty")
    return password


@dataclass(frozen=True, slots=True)
class AccountSettings:
    """The settings in a table of `accounts_file`."""

    username: str = setting(doc="The account at the nodes.")
    password: str = setting(doc="Its password.", secret=True)


def read_accounts(file: Path) -> dict[str, tuple[str, str]]:
    """Return user name and password by principal. Raises ConfigError."""
    tables, _text = read_tables(file)
    for principal, table in tables.items():
        if not isinstance(table, dict) or check_table(AccountSettings, table):
            # `load_settings` reads the file again, and raises ConfigError with the number of the line.
            load_settings(file, (principal,), AccountSettings)
    return {principal: (table["username"], table["password"]) for principal, table in tables.items()}


def problem_with(key: str, path: Path) -> str | None:
    """Return the reason why the file for a key of `[gateway.upstream]` cannot be used; None if it can be used."""
    try:
        _CHECKS[key](path)
    except ConfigError as error:
        return str(error)
    except ssl.SSLError:
        return f"{path}: {_NOT_PEM[key]}"
    except OSError as error:
        return f"{path}: {error.strerror}"
    except ValueError as error:
        return f"{path}: {error}"
    return None


def _check_truststore(path: Path) -> None:
    ssl.create_default_context(cafile=path)


def _check_keystore(path: Path) -> None:
    # Without a callback, OpenSSL would ask for the password of an encrypted key at the terminal.
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(path, password=lambda: "")


_CHECKS: Final[Mapping[str, Callable[[Path], object]]] = {
    "sasl_password_file": read_password,
    "accounts_file": read_accounts,
    "ssl_truststore_location": _check_truststore,
    "ssl_keystore_location": _check_keystore,
}
_NOT_PEM: Final = {
    "ssl_truststore_location": "it contains no PEM certificate",
    "ssl_keystore_location": "it does not contain a PEM certificate with its unencrypted key",
}
FILES: Final = tuple(_CHECKS)
"""The keys that name files."""
