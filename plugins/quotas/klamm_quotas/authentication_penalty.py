"""The gate `authentication_penalty`: who fails to authenticate too often is not served for a while."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from klamm import Address, Admission, Clock, ConnectionGate, Delay, ListenerContext, Refuse
from klamm_quotas.addresses import NetworkMap, host_of
from klamm_quotas.settings import AuthenticationPenaltySettings

_MS_NS = 1_000_000


@dataclass(slots=True)
class Failures:
    """Of one address: how many count, when the last was, and until when the address is not served."""

    count: int = 0
    last_ns: int = 0
    penalized_until_ns: int = 0


class AuthenticationPenalty(ConnectionGate):
    """Each failure beyond those that are allowed keeps the address out for twice as long as the one before.

    What comes meanwhile is closed unserved after a delay, and costs nothing more. A connection that authenticates takes
    back one failure: many clients may stand behind one address, and one that is set up wrongly must not keep the others
    out for ever, but neither shall one valid account pay for guessing others.
    """

    settings: AuthenticationPenaltySettings

    def __init__(self, settings: AuthenticationPenaltySettings | None = None) -> None:
        super().__init__(settings or AuthenticationPenaltySettings())
        self._exempt = NetworkMap(dict.fromkeys(self.settings.exempt, True))
        self._lock = threading.Lock()
        self._failures: dict[str, Failures] = {}
        self._clock: Clock

    def open(self, listener: ListenerContext) -> None:
        self._clock = listener.services.clock
        listener.services.metrics.gauge(
            "klamm:type=AuthenticationPenalty,name=PenalizedAddresses",
            "Addresses that are not served because they failed to authenticate.",
            self.penalized,
            listener=listener.name,
        )

    def reconfigure(self, settings: AuthenticationPenaltySettings) -> bool:
        exempt = NetworkMap(dict.fromkeys(settings.exempt, True))
        with self._lock:
            self.settings, self._exempt = settings, exempt
        return True

    def penalized(self) -> int:
        """How many addresses are not served now."""
        now_ns = self._clock.monotonic_ns()
        with self._lock:
            return sum(each.penalized_until_ns > now_ns for each in self._failures.values())

    def admit(self, address: Address) -> Admission:
        if not self._failures or self._exempt.find(address.host, False):
            return None
        with self._lock:
            failures = self._failures.get(host_of(address))
            left_ns = failures.penalized_until_ns - self._clock.monotonic_ns() if failures is not None else 0
        if left_ns <= 0:
            return None
        delay_ms = min(self.settings.delay_ms, left_ns // _MS_NS + 1)
        if not delay_ms:
            return Refuse("authentication_penalty", f"not served for {left_ns // _MS_NS} ms more")
        return Delay(delay_ms, "authentication_penalty")

    def release(self, address: Address) -> None:
        """Failures outlive connections."""

    def authentication_failed(self, address: Address) -> None:
        host, settings, now_ns = host_of(address), self.settings, self._clock.monotonic_ns()
        if self._exempt.find(host, False):
            return
        with self._lock:
            # The dictionary is in the order of the last failures.
            failures = self._failures.pop(host, None)
            if failures is None or now_ns - failures.last_ns >= settings.forget_after_ms * _MS_NS:
                failures = Failures()
            self._make_room(now_ns)
            self._failures[host] = failures
            failures.count += 1
            failures.last_ns = now_ns
            beyond = failures.count - settings.allowed_failures
            if beyond > 0:
                # More doublings than that are beyond every limit.
                penalty_ms = min(settings.max_penalty_ms, settings.initial_penalty_ms << min(beyond - 1, 32))
                failures.penalized_until_ns = now_ns + penalty_ms * _MS_NS

    def _make_room(self, now_ns: int) -> None:
        obsolete_ns = now_ns - self.settings.forget_after_ms * _MS_NS
        while self._failures:
            oldest = next(iter(self._failures))
            full = len(self._failures) >= self.settings.max_tracked_addresses
            if not full and self._failures[oldest].last_ns > obsolete_ns:
                return
            del self._failures[oldest]

    def authenticated(self, address: Address) -> None:
        if not self._failures:
            return
        with self._lock:
            failures = self._failures.get(host_of(address))
            if failures is not None:
                failures.count -= 1
                if failures.count <= 0:
                    del self._failures[host_of(address)]
