"""The throttle `client_quota`: applies the client quotas of the server to one listener."""

from __future__ import annotations

from klamm import ListenerContext, RequestContext, Throttle
from klamm_throttling.manager import ClientQuotaManager
from klamm_throttling.metrics import register
from klamm_throttling.throttling_settings import ClientQuotaSettings


class ClientQuota(Throttle):
    """Kafka's client quotas. As in Kafka, the use at all listeners is counted together."""

    settings: ClientQuotaSettings

    def __init__(self, settings: ClientQuotaSettings | None = None) -> None:
        super().__init__(settings or ClientQuotaSettings())
        self._manager: ClientQuotaManager

    def open(self, listener: ListenerContext) -> None:
        """Add a listener. Raises ValueError if another listener has different settings."""
        services = listener.services

        def make() -> ClientQuotaManager:
            manager = ClientQuotaManager(services, self.settings)
            register(manager, services.metrics)
            return manager

        self._manager = services.shared.once("client_quota", make)
        if self._manager.settings != self.settings:
            raise ValueError("client quotas apply to the whole server: write [client_quota] once, for all listeners")
        self._manager.watch(lambda: listener.throttles_changed())

    @property
    def active(self) -> bool:
        """Return True if there is any quota."""
        return self._manager.has_quotas

    def reconfigure(self, settings: ClientQuotaSettings) -> bool:
        self.settings = settings
        self._manager.configure(settings)
        return True

    def charge(self, context: RequestContext, size_bytes: int, seconds: float) -> int:
        return self._manager.charge(context, size_bytes, seconds)

    def max_record_bytes(self, context: RequestContext) -> int | None:
        return self._manager.max_record_bytes(context)

    def charge_records(self, context: RequestContext, size_bytes: int) -> int:
        return self._manager.charge_records(context, size_bytes)

    def charge_mutations(self, context: RequestContext, count: int, strict: bool) -> int:
        return self._manager.charge_mutations(context, count, strict)
