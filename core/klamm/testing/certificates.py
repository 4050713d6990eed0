"""`CertificateFiles`: a certificate authority for tests, with certificates for a server and for clients."""

from __future__ import annotations

import contextlib
import io
import ssl
from collections.abc import Sequence
from pathlib import Path

from klamm.api.provider import ProviderKind
from klamm.config.plugin_registry import PluginRegistry, load_factory


class CertificateFiles:
    """The files of `klamm certs` in a `directory`, in PEM. `client(name)` makes the file of `User:CN=NAME`."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self._make()

    @property
    def ca(self) -> Path:
        """Return the file with the certificate of the authority, for the trust stores of servers and clients."""
        return self.directory / "ca.pem"

    @property
    def server(self) -> Path:
        """Return the file with the certificate of localhost, 127.0.0.1 and ::1, and its key."""
        return self.directory / "server.pem"

    def client(self, name: str = "client") -> Path:
        """Return the file with the certificate of a client and its key, made at the first call.

        Raises ValueError for an invalid name.
        """
        self._make("--client", name)
        return self.directory / f"{name}.pem"

    def client_context(self, client: Path | None = None) -> ssl.SSLContext:
        """Return the context for a Python client; `client` is the file with the client's certificate."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if client is not None:
            context.load_cert_chain(client)
        return context

    def _make(self, *arguments: str) -> None:
        command = load_factory(PluginRegistry(environment={"KLAMM_LOAD_PLUGINS": ""}).resolve(*_CERTS))
        # The command prints hints for the use of the files, which are not needed here.
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            options: Sequence[str] = [str(self.directory), *arguments]
            exit_code = command(list(options))
        if exit_code:
            raise ValueError(said.getvalue().strip())


_CERTS = (ProviderKind.COMMAND, "certs")
