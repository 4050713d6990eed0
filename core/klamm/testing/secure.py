"""`SecureServer`: a server for tests with TLS, SCRAM and ACLs. It returns the settings that its clients need."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

from klamm.config.problems import did_you_mean
from klamm.shared.scram import ScramMechanism
from klamm.testing.acls import OperationName, ResourceTypeName
from klamm.testing.admin import Admin
from klamm.testing.certificates import CertificateFiles
from klamm.testing.client_settings import Login, settings_for
from klamm.testing.embedded import EmbeddedServer
from klamm.testing.outcomes import check_error
from klamm.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion

ADMIN: Final = "admin"
PASSWORD: Final = "secret"
_MECHANISM: Final = ScramMechanism.SCRAM_SHA_512
_ITERATIONS: Final = 4096
_SALT_BYTES: Final = 16


def secure_settings(files: CertificateFiles) -> list[str]:
    """Return the settings of a listener `secure` with TLS, SCRAM and ACLs, in which `admin` may do everything."""
    secure = [
        "bind=127.0.0.1:0",
        "transport=ssl",
        f"ssl.certificate={files.server}",
        "authenticator=sasl",
        f'sasl.mechanisms=["{_MECHANISM.mechanism_name}"]',
        'sasl.credential_stores=["broker"]',
        "authorizer=acl",
        f'acl.super_users=["User:{ADMIN}"]',
    ]
    # The helpers change ACLs through the listener `default`, so this listener needs the authorizer too.
    everyone = ["authorizer=acl", 'acl.super_users=["User:ANONYMOUS"]']
    return [*(f"listeners.default.{one}" for one in everyone), *(f"listeners.secure.{one}" for one in secure)]


class Users:
    """The users of a server with a listener of `secure_settings`. Raises KafkaError if the server refuses a request."""

    def __init__(self, admin: Admin, ca_file: Path) -> None:
        self._admin = admin
        self._ca_file = ca_file
        self._passwords: dict[str, str] = {}

    def add(self, name: str, password: str = PASSWORD) -> None:
        """Create a user, or change its password."""
        salt = os.urandom(_SALT_BYTES)
        salted = hashlib.pbkdf2_hmac(_MECHANISM.hash_name, password.encode(), salt, _ITERATIONS)
        upsertion = ScramCredentialUpsertion(name, _MECHANISM.type_code, _ITERATIONS, salt, salted)
        (result,) = self._admin.call(AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0).results
        check_error(result.error_code, result.error_message)
        self._passwords[name] = password

    def login(self, user: str = ADMIN) -> Login:
        """Return the login of a user, for `settings_for`. Raises KeyError for a user that `add` has not created."""
        if user not in self._passwords:
            raise KeyError(f'there is no user "{user}"{did_you_mean(user, self._passwords)}; add_user makes one')
        return Login(self._ca_file, _MECHANISM.mechanism_name, user, self._passwords[user])


class SecureServer(EmbeddedServer):
    """An `EmbeddedServer` whose listener `secure` requires TLS, SCRAM-SHA-512 and ACLs.

    The user `admin` may do everything. `add_user` creates other users, which may do only what `allow` permits. The
    default password is `secret`. `bootstrap` is the address of the listener `secure`. The helpers, e.g. `create_topic`,
    use the listener `default`, which is open to every client. `ca_file` has the certificate that clients must trust.
    """

    def __init__(self, settings: Sequence[str] = (), **options: Any) -> None:
        self._files = tempfile.TemporaryDirectory(prefix="klamm-tls-")
        files = CertificateFiles(self._files.name)
        self.ca_file = files.ca
        super().__init__([*secure_settings(files), *settings], **options)
        self._users = Users(self.admin, self.ca_file)

    def start(self) -> Self:
        """Start the server as `EmbeddedServer.start` does."""
        super().start()
        self.add_user(ADMIN)
        return self

    def stop(self) -> None:
        """Stop the server as `EmbeddedServer.stop` does, and delete the certificates."""
        super().stop()
        self._files.cleanup()

    @property
    def bootstrap(self) -> str:
        """Return `HOST:PORT` of the listener `secure`."""
        return str(self._listener("secure").context.bound)

    def add_user(self, name: str, password: str = PASSWORD) -> None:
        """Create a user, or change its password."""
        self._users.add(name, password)

    def allow(
        self, user: str, operation: OperationName, resource_type: ResourceTypeName, name: str, *, prefix: bool = False
    ) -> None:
        """Allow an operation to a user, e.g. `allow("alice", "READ", "TOPIC", "orders")`.

        `acls` has further methods.
        """
        self.acls.allow(user, operation, resource_type, name, prefix=prefix)

    def client_settings(self, client: str, user: str = ADMIN) -> dict[str, Any]:
        """Return the settings with which a client library connects as this user.

        `client` is the name of a library, as in `EmbeddedServer.client_settings`. Raises KeyError for an unknown user,
        ValueError for an unknown library.
        """
        login = self._users.login(user)
        return settings_for(client, self.bootstrap, login)
