"""The gate `creation_rate`: limits the rate of new connections. Follows Kafka's `ConnectionQuotas` (KIP-612).

klamm calls `admit` on the acceptor's thread, or on a processor's thread if the listener is behind a proxy.
"""

from __future__ import annotations

from functools import partial

from klamm import Address, Admission, ConnectionGate, Delay, ListenerContext
from klamm.runtime import Rate
from klamm.shared import WorkerShare, source_of
from klamm_quotas.addresses import NetworkMap
from klamm_quotas.connection_rates import ConnectionRates, RecentMean
from klamm_quotas.quota_settings import UNLIMITED, CreationRateSettings, live_keys_of


class CreationRate(ConnectionGate):
    """The gate `creation_rate`. It limits the rate of an address, of a listener and of the server.

    A connection that exceeds the rate of its address is not counted. It is closed after the delay that would bring the
    rate down. If the rate of the listener or the server is exceeded, the acceptor waits for this delay, and then
    accepts the connection. No delay is longer than a window. Behind a proxy each connection waits separately, instead
    of the acceptor.
    """

    settings: CreationRateSettings

    live_keys = live_keys_of(CreationRateSettings)

    def __init__(self, settings: CreationRateSettings | None = None) -> None:
        super().__init__(settings or CreationRateSettings())
        self._overrides = NetworkMap[float](dict(self.settings.overrides))
        # The waiting connections, each with the end of its wait and the exceeded rate. An acceptor waits for them, or
        # behind a proxy a processor.
        self._waiting: dict[Address, tuple[int, str]] = {}
        self._rates: ConnectionRates
        self._rate: Rate
        self._throttle_time: RecentMean
        self._ip_throttle_time: RecentMean
        self._listener: ListenerContext
        self._share = WorkerShare()

    @property
    def _window_ms(self) -> int:
        return self.settings.quota_window_size_seconds * 1000

    def open(self, listener: ListenerContext) -> None:
        services, samples = listener.services, self.settings.quota_window_num
        self._listener = listener
        self._share = services.worker
        self._rates = services.shared.once("connection_rates", lambda: _new_rates(listener, samples, self._window_ms))
        self._rate = Rate(samples, self._window_ms)
        self._throttle_time = RecentMean()
        self._ip_throttle_time = RecentMean()
        for prefix, mean, doc in (
            ("", self._throttle_time, "Mean milliseconds for which the acceptor waited because of a creation rate"),
            ("ip-", self._ip_throttle_time, "Mean milliseconds until connections over their rate were closed"),
        ):
            services.metrics.gauge(
                f"kafka.server:type=socket-server-metrics,name={prefix}connection-accept-throttle-time",
                f"{doc}, over the last half to one minute; counts only those that were throttled.",
                partial(self._measure, mean),
                listener=listener.name,
            )

    def _measure(self, mean: RecentMean) -> float:
        with self._rates.lock:
            return mean.measure(self._rates.now_ms())

    def reconfigure(self, settings: CreationRateSettings) -> bool:
        """Apply new settings at once. As in Kafka, a waiting acceptor continues to wait."""
        overrides = NetworkMap[float](dict(settings.overrides))
        with self._rates.lock:
            self.settings, self._overrides = settings, overrides
            if (self._rate.samples, self._rate.window_ms) != (settings.quota_window_num, self._window_ms):
                self._rate = Rate(settings.quota_window_num, self._window_ms)
                self._rates.configure(settings.quota_window_num, self._window_ms)
        return True

    def limit_of(self, host: str) -> float:
        """Return the number of connections per second that an address may make.

        The first that exists applies: the address's own quota of AlterClientQuotas, the longest prefix of the settings,
        the default of AlterClientQuotas, the default of the settings.
        """
        return self._limit_and_source(host)[0]

    def _limit_and_source(self, host: str) -> tuple[float, str]:
        """Return the limit of an address, and the source under which its connections are counted.

        An address with its own quota is a source of its own.
        """
        rates, settings = self._rates, self.settings
        own = rates.limit_of(host)
        if own is not None:
            return own, source_of(host, 128)
        default = rates.default_limit
        limit = self._overrides.find(host, default if default is not None else settings.connection_creation_rate)
        return limit, source_of(host, settings.ipv6_prefix_length)

    def admit(self, address: Address) -> Admission:
        rates = self._rates
        now_ms = rates.now_ms()
        limit, source = self._limit_and_source(address.host)
        with rates.lock:
            waiting = self._waiting.get(address)
            if waiting is not None:
                # The connection was counted at its first check.
                if waiting[0] > now_ms:
                    return Delay(waiting[0] - now_ms, waiting[1], pause_acceptor=True)
                del self._waiting[address]
                return None
            if limit < UNLIMITED:
                rate = rates.of(source, now_ms)
                delay_ms = self._record(rate, limit, now_ms)
                if delay_ms:
                    rate.record(-1, now_ms)
                    self._ip_throttle_time.record(delay_ms, now_ms)
                    return Delay(delay_ms, "per_ip_rate")
            delay_ms = self._record(self._rate, self.settings.max_connection_creation_rate, now_ms)
            reason = "per_listener_rate"
            if not self._protected:
                broker_ms = self._record(rates.broker, self.settings.broker_max_connection_creation_rate, now_ms)
                if broker_ms > delay_ms:
                    delay_ms, reason = broker_ms, "per_broker_rate"
            if not delay_ms:
                return None
            self._forget_abandoned(now_ms)
            self._waiting[address] = (now_ms + delay_ms, reason)
            self._throttle_time.record(delay_ms, now_ms)
            return Delay(delay_ms, reason, pause_acceptor=True)

    def _forget_abandoned(self, now_ms: int) -> None:
        for address, (until_ms, _reason) in list(self._waiting.items()):
            if until_ms + self._window_ms > now_ms:
                return
            del self._waiting[address]

    def _record(self, rate: Rate, limit: float, now_ms: int) -> int:
        rate.record(1, now_ms)
        if limit >= UNLIMITED:
            return 0
        return min(rate.throttle_time_ms(self._share.of_rate(limit), now_ms), self._window_ms)

    @property
    def _protected(self) -> bool:
        return self.settings.protected and len(self._listener.services.listeners) > 1

    def release(self, address: Address) -> None:
        """Do nothing: a rate falls as time passes."""


def _new_rates(listener: ListenerContext, samples: int, window_ms: int) -> ConnectionRates:
    rates = ConnectionRates(listener.services, samples, window_ms)

    def broker_rate() -> float:
        with rates.lock:
            return rates.broker.measure(rates.now_ms())

    metrics = listener.services.metrics
    metrics.gauge(
        "kafka.server:type=socket-server-metrics,name=broker-connection-accept-rate",
        "Connections per second to all listeners together, without protected ones.",
        broker_rate,
    )
    metrics.gauge(
        "klamm:type=CreationRate,name=TrackedAddresses",
        "Addresses whose rate is kept in memory.",
        lambda: rates.tracked,
    )
    return rates
