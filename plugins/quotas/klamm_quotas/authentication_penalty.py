"""The gate `authentication_penalty`: an address that fails to authenticate too often is refused for some time."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from klamm import Address, Admission, ConnectionGate, Delay, ListenerContext, Refuse
from klamm.runtime import Clock
from klamm.shared import IpNetworks, WorkerShare, source_of
from klamm_quotas.quota_settings import AuthenticationPenaltySettings, live_keys_of

_MS_NS = 1_000_000


@dataclass(slots=True)
class Failures:
    """The failures of one address: their number, the time at which they are forgotten, and the end of the refusal."""

    count: int = 0
    forgotten_ns: int = 0
    penalized_until_ns: int = 0


class AuthenticationFailures:
    """The failures of one server, by address. The gates of all listeners share it, and use it on any thread.

    A gate holds `lock` while it reads or changes `by_source`, which is in the order of the last failures.
    """

    def __init__(self, clock: Clock) -> None:
        # Protects the failures by source, and the settings.
        self.lock = threading.Lock()
        self.by_source: dict[str, Failures] = {}
        self._clock = clock

    def now_ns(self) -> int:
        """Return the time of the clock that all failures use."""
        return self._clock.monotonic_ns()

    def penalized(self) -> int:
        """Return the number of addresses that are refused now."""
        now_ns = self.now_ns()
        with self.lock:
            return sum(each.penalized_until_ns > now_ns for each in self.by_source.values())

    def make_room(self, now_ns: int, most: int) -> None:
        """Remove expired failures, and the oldest entry if there are still `most`. The caller holds the lock."""
        while self.by_source:
            oldest = next(iter(self.by_source))
            if len(self.by_source) < most and self.by_source[oldest].forgotten_ns > now_ns:
                return
            del self.by_source[oldest]


class AuthenticationPenalty(ConnectionGate):
    """The gate `authentication_penalty`. It refuses an address that has failed to authenticate too often.

    The first `allowed_failures` are free. Each further failure refuses the address for twice as long as the one before.
    Meanwhile the address's connections are closed after a delay; they do not extend the refusal. A connection removes
    one failure if its client proves its identity, and none if it only completes a handshake. Many clients may share an
    address. So a client with a wrong password does not lock the others out for good, and a client with a valid account
    cannot use it to guess passwords of others.

    Failures at all listeners with the gate count together. The settings of the listener where a failure happens decide
    how long the address is refused.
    """

    settings: AuthenticationPenaltySettings

    live_keys = live_keys_of(AuthenticationPenaltySettings)

    def __init__(self, settings: AuthenticationPenaltySettings | None = None) -> None:
        super().__init__(settings or AuthenticationPenaltySettings())
        self._exempt = IpNetworks(self.settings.exempt)
        self._failures: AuthenticationFailures
        self._share = WorkerShare()

    def open(self, listener: ListenerContext) -> None:
        services = listener.services
        self._share = services.worker

        def make() -> AuthenticationFailures:
            failures = AuthenticationFailures(services.clock)
            services.metrics.gauge(
                "klamm:type=AuthenticationPenalty,name=PenalizedAddresses",
                "Addresses that are refused because they failed to authenticate.",
                failures.penalized,
            )
            return failures

        self._failures = services.shared.once("authentication_failures", make)

    def reconfigure(self, settings: AuthenticationPenaltySettings) -> bool:
        """Apply new settings at once."""
        exempt = IpNetworks(settings.exempt)
        with self._failures.lock:
            self.settings, self._exempt = settings, exempt
        return True

    def admit(self, address: Address) -> Admission:
        shared = self._failures
        if not shared.by_source or address.host in self._exempt:
            return None
        with shared.lock:
            failures = shared.by_source.get(self._source(address))
            left_ns = failures.penalized_until_ns - shared.now_ns() if failures is not None else 0
        if left_ns <= 0:
            return None
        delay_ms = min(self.settings.delay_ms, left_ns // _MS_NS + 1)
        if not delay_ms:
            return Refuse("authentication_penalty", f"refused for {left_ns // _MS_NS} ms more")
        return Delay(delay_ms, "authentication_penalty")

    def release(self, address: Address) -> None:
        """Do nothing: failures outlive connections."""

    def authentication_failed(self, address: Address) -> None:
        source, settings, shared = self._source(address), self.settings, self._failures
        if address.host in self._exempt:
            return
        now_ns = shared.now_ns()
        with shared.lock:
            failures = shared.by_source.pop(source, None)
            if failures is None or now_ns >= failures.forgotten_ns:
                failures = Failures()
            shared.make_room(now_ns, settings.max_tracked_addresses)
            shared.by_source[source] = failures
            failures.count += 1
            failures.forgotten_ns = now_ns + settings.forget_after_ms * _MS_NS
            beyond = failures.count - self._share.at_least_one(settings.allowed_failures)
            if beyond > 0:
                # The bound of 32 doublings exceeds every `max_penalty_ms`.
                penalty_ms = min(settings.max_penalty_ms, settings.initial_penalty_ms << min(beyond - 1, 32))
                failures.penalized_until_ns = now_ns + penalty_ms * _MS_NS

    def _source(self, address: Address) -> str:
        return source_of(address.host, self.settings.ipv6_prefix_length)

    def identified(self, address: Address) -> None:
        shared = self._failures
        if not shared.by_source:
            return
        source = self._source(address)
        with shared.lock:
            failures = shared.by_source.get(source)
            if failures is not None:
                failures.count -= 1
                if failures.count <= 0:
                    del shared.by_source[source]
