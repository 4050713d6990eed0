"""`CertificateFiles`: a development authority with certificates for a server and for clients, for tests."""

from __future__ import annotations

import contextlib
import io
import ssl
from collections.abc import Sequence
from pathlib import Path

from klamm.api.provider import ProviderKind
from klamm.config.plugin_registry import PluginRegistry, load_factory


class CertificateFiles:
    """The files of `klamm certs`: `ca` is the authority, `server` a certificate for localhost with its key, in PEM.



    `client(name)` makes a certificate for a client whose principal is `User:CN=NAME`.
    """

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self._make()

    @property
    def ca(self) -> Path:
        """The certificate of the authority, for the trust stores of both sides."""
        return self.directory / "ca.pem"

    @property
    def server(self) -> Path:
        """The certificate of localhost, 127.0.0.1 and ::1, and its key."""
        return self.directory / "server.pem"

    def client(self, name: str = "client") -> Path:
        """Return the certificate of a client with its key, made at the first call. Raises ValueError for an invalid
        name.
        """
        self._make("--client", name)
        return self.directory / f"{name}.pem"

    def client_context(self, client: Path | None = None) -> ssl.SSLContext:
        """Return the context with which a Python client connects; `client` is the certificate that it presents."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if client is not None:
            context.load_cert_chain(client)
        return context

    def _make(self, *arguments: str) -> None:
        command = load_factory(PluginRegistry(environment={"KLAMM_LOAD_PLUGINS": ""}).resolve(*_CERTS))
        # The command prints how to use them.
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            options: Sequence[str] = [str(self.directory), *arguments]
            exit_code = command(list(options))
        if exit_code:
            raise ValueError(said.getvalue().strip())


_CERTS = (ProviderKind.COMMAND, "certs")
