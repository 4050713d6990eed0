"""`SchemaRegistry`: the extension `schema_registry`, with its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from klamm import ServerExtension, ServerServices, setting
from klamm.config import check_host_port, parse_host_port
from klamm.testing import admin_of
from klamm_schema_registry.api import Api
from klamm_schema_registry.formats import LEVELS
from klamm_schema_registry.http import RegistryServer
from klamm_schema_registry.metrics import RegistryMetrics
from klamm_schema_registry.registry import Limits, Registry
from klamm_schema_registry.topic import SchemasTopic


@dataclass(frozen=True, slots=True)
class SchemaRegistrySettings:
    """`[schema_registry]`."""

    bind: str = setting(
        "127.0.0.1:0",
        doc="Address to listen on; port 0 is any free port. Every client that reaches it may read and write.",
        check=check_host_port,
    )
    topic: str = setting("_schemas", doc="Topic that keeps the schemas; it is created if it does not exist.")
    compatibility: str = setting(
        "BACKWARD", doc="Compatibility level of subjects until a request sets another one.", choices=LEVELS
    )
    max_schema_bytes: int = setting(
        1 << 20, doc="Largest body of a request, i.e. roughly the largest schema.", minimum=1024, maximum=16 << 20
    )
    max_schemas: int = setting(
        10_000, doc="Schemas that the registry holds, each counted for each subject and version.", minimum=1
    )
    max_subjects: int = setting(10_000, doc="Subjects that the registry holds, and that have settings.", minimum=1)


class SchemaRegistry(ServerExtension):
    """The extension `schema_registry`. It serves from the time when all listeners are ready until the server stops."""

    def open(self, server: ServerServices) -> None:
        """Bind the address. Raises OSError."""
        settings: SchemaRegistrySettings = self.settings
        self._services = server
        self._admin = admin_of(server)
        topic = SchemasTopic(self._admin, settings.topic, settings.max_schema_bytes)
        limits = Limits(settings.max_schemas, settings.max_subjects, settings.compatibility)
        self._registry = Registry(topic, limits)
        answered = RegistryMetrics(server.metrics, self._registry).answered
        address, most = parse_host_port(settings.bind), settings.max_schema_bytes
        self._http = RegistryServer(address, Api(self._registry), most, answered)
        server.shared.once("klamm.schema_registry", lambda: self)

    def ready(self) -> None:
        self._http.start()

    def stopping(self) -> None:
        self._http.stop()

    def close(self) -> None:
        self._http.close()
        self._admin.close()

    def clear(self) -> None:
        """Read the topic again: it was deleted, or other clients have written to it. Any thread may call it."""
        self._registry.clear()

    @property
    def url(self) -> str:
        """The base URL, for the client setting `schema.registry.url`."""
        return self._http.url

    def describe(self) -> str:
        return self.url

    def ready_file_entries(self) -> Mapping[str, object]:
        return {"schema_registry": self.url}
