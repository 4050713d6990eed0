"""`Console`: the extension, which serves the page at an address of its own."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from klamm import ServerExtension, ServerServices
from klamm.config import parse_host_port
from klamm_console.api import Api
from klamm_console.console_settings import ConsoleSettings
from klamm_console.entry import Entry
from klamm_console.http import ConsoleServer
from klamm_console.schemas import Schemas
from klamm_console.sessions import Sessions


class Console(ServerExtension):
    """The extension `console`. It serves from the time when all listeners are ready until the server stops."""

    def open(self, server: ServerServices) -> None:
        """Bind the address. Raises OSError."""
        settings: ConsoleSettings = self.settings
        self._server = server
        self._is_random = settings.token is None
        self._token = settings.token or server.random_bytes(16).hex()
        self._entry = Entry(server, settings)
        self._sessions = Sessions(server.clock, server.random_bytes, settings.session_minutes)
        self.api = Api(server, self._entry, self._sessions, Schemas(self._registry), self._token)
        self._http = ConsoleServer(parse_host_port(settings.bind), self.api, settings.hosts)

    def ready(self) -> None:
        """Start to answer requests. Raises NoListenerError."""
        self._entry.listener  # noqa: B018
        self._http.start()

    def stopping(self) -> None:
        self.api.streams.end_all()
        self.api.findings.close()
        self._http.stop()

    def close(self) -> None:
        self._http.close()
        self._sessions.end_all()

    def _registry(self) -> str:
        """Return the URL of the Schema Registry in the settings, else that of this server's, else an empty text."""
        if self.settings.schema_registry:
            return str(self.settings.schema_registry)
        found = self._server.shared.find("klamm.schema_registry")
        return "" if found is None else str(found.url)

    @property
    def url(self) -> str:
        """The address of the page. It contains the token if the console needs one."""
        return f"{self._http.url}/#token={quote(self._token, safe='')}" if self._entry.needs_token else self._http.url

    def describe(self) -> str:
        # A token from the configuration is not shown, because it is valid beyond this start.
        return self.url if self._is_random else self._http.url

    def ready_file_entries(self) -> Mapping[str, object]:
        return {"console": self.url}
