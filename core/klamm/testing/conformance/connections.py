"""`check_gate` and `check_throttle`, which check parts that limit connections and requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from klamm.api.context import Address, RequestContext
from klamm.api.gates import ConnectionGate, Delay, Refuse
from klamm.api.throttles import Throttle
from klamm.shared.principal import KafkaPrincipal
from klamm.testing.conformance.life_cycle import PartCase, rules_of
from klamm.testing.conformance.rules import ensure, from_threads, is_label, run_rules, within_patience
from klamm.wire.messages.metadata import MetadataRequest

_MINUTE_MS: Final = 60_000
_MANY: Final = 200
_HOSTS: Final = ("127.0.0.1", "10.1.2.3", "::1", "2001:db8::7")
_LARGE: Final = 1 << 40


class _GateCase(PartCase):
    contract = ConnectionGate


def check_gate(factory: Callable[[Any], ConnectionGate], settings: Any = None, *, other_settings: Any = None) -> None:
    """Check that a connection gate keeps its contract.

    `factory(settings)` makes a gate, as the server does; `other_settings` are changed settings for `reconfigure`.
    Raises AssertionError with the part, the rule, the expected and the actual behaviour.
    """
    run_rules(GATE_RULES, _GateCase(factory, settings, other_settings))


def _admit(gate: ConnectionGate, address: Address) -> bool:
    return gate.admit(address) is None


def decides_in_the_types_of_the_contract(case: _GateCase) -> None:
    """`admit` returns None, a Refuse or a Delay, with a reason in lower_snake_case, for every address and number."""
    with case.opened() as gate:
        for number in range(_MANY):
            address = Address(_HOSTS[number % len(_HOSTS)], 1024 + number)
            decision = within_patience("admit", gate.admit, address)
            ensure(decision is None or isinstance(decision, (Refuse, Delay)), f"admit returned {decision!r}")
            if decision is not None:
                ensure(is_label(decision.reason), f"the reason is {decision.reason!r}")
            if isinstance(decision, Delay):
                ensure(decision.delay_ms >= 0, f"the delay is {decision.delay_ms} ms")


def gives_back_what_closes(case: _GateCase) -> None:
    """When all admitted connections have closed, the gate admits as many as before.

    A refused connection takes no place.
    """
    with case.opened() as gate:
        counts = []
        for _ in range(3):
            addresses = [Address(_HOSTS[1], 1024 + number) for number in range(_MANY)]
            admitted = [address for address in addresses if _admit(gate, address)]
            counts.append(len(admitted))
            for address in admitted:
                gate.release(address)
            case.listener.advance_ms(60 * _MINUTE_MS)
        ensure(len(set(counts)) == 1, f"{counts} connections were admitted in three equal rounds")


def is_notified_of_authentication(case: _GateCase) -> None:
    """`authenticated`, `identified` or `authentication_failed` may follow an admission, and `release` comes last."""
    with case.opened() as gate:
        for number, event in enumerate((gate.authenticated, gate.identified, gate.authentication_failed)):
            address = Address(_HOSTS[0], 1024 + number)
            if _admit(gate, address):
                event(address)
                gate.release(address)


def is_called_from_several_threads(case: _GateCase) -> None:
    """Connections come and close on several threads; all places are given back."""
    with case.opened() as gate:

        def one(number: int) -> None:
            address = Address(_HOSTS[2], 1024 + number)
            if _admit(gate, address):
                gate.authenticated(address)
                gate.release(address)

        from_threads("admit and release", one)
        case.listener.advance_ms(60 * _MINUTE_MS)
        address = Address(_HOSTS[2], 1024)
        alone = case.make()
        alone.open(case.listener.context)
        expected = _admit(alone, address)
        ensure(
            _admit(gate, address) == expected,
            "after all connections have closed, it does not decide as a new gate does",
        )
        for each in (alone, gate) if expected else ():
            each.release(address)
        alone.close()


def releases_after_it_changed(case: _GateCase) -> None:
    """A connection that was admitted may close after `reconfigure`."""
    with case.opened() as gate:
        address = Address(_HOSTS[1], 1024)
        admitted = _admit(gate, address)
        gate.reconfigure(case.other_settings)
        if admitted:
            gate.release(address)


GATE_RULES: Final = rules_of(_GateCase)


class _ThrottleCase(PartCase):
    contract = Throttle


def check_throttle(factory: Callable[[Any], Throttle], settings: Any = None, *, other_settings: Any = None) -> None:
    """Check that a throttle keeps its contract; see `check_gate`."""
    run_rules(THROTTLE_RULES, _ThrottleCase(factory, settings, other_settings))


def _requests(case: _ThrottleCase) -> list[RequestContext]:
    listener = case.listener
    return [
        listener.request(MetadataRequest(), 9, listener.connection(KafkaPrincipal(name)), client_id)
        for name in ("alice", "ANONYMOUS")
        for client_id in ("client", "", "ümläut\n")
    ]


def _check_times(method: str, times_ms: object) -> None:
    ensure(type(times_ms) is int and times_ms >= 0, f"{method} returned {times_ms!r}")


def says_whether_it_is_active(case: _ThrottleCase) -> None:
    """`active` is True or False."""
    with case.opened() as throttle:
        ensure(throttle.active is True or throttle.active is False, f"it is {throttle.active!r}")


def charges_in_milliseconds(case: _ThrottleCase) -> None:
    """A charge costs whole milliseconds, 0 or more, for every client, size and time, and blocks no thread."""
    with case.opened() as throttle:
        for context in _requests(case):
            for size, seconds in ((0, 0.0), (100, 0.001), (_LARGE, 3600.0)):
                charge = within_patience("charge", throttle.charge, context, size, seconds)
                _check_times("charge", charge)
            _check_times("charge_records", throttle.charge_records(context, _LARGE))
            for strict in (False, True):
                _check_times("charge_mutations", throttle.charge_mutations(context, 1000, strict))
            limit = throttle.max_record_bytes(context)
            ensure(limit is None or (type(limit) is int and limit >= 0), f"max_record_bytes returned {limit!r}")


def forgets_with_time(case: _ThrottleCase) -> None:
    """A client that has been silent for an hour, and does little, is not throttled for its earlier requests."""
    with case.opened() as throttle:
        for context in _requests(case):
            throttle.charge(context, 1 << 20, 1.0)
        case.listener.advance_ms(60 * _MINUTE_MS)
        for context in _requests(case):
            times_ms = throttle.charge(context, 0, 0.0)
            ensure(times_ms == 0, f"charge returned {times_ms} ms")


def changes_no_request(case: _ThrottleCase) -> None:
    """Throttles leave the context alone: klamm notes the longest delay."""
    with case.opened() as throttle:
        (context, *_) = _requests(case)
        before = (context.throttle_time_ms, context.connection.principal, context.client_id, context.size_bytes)
        throttle.charge(context, _LARGE, 10.0)
        after = (context.throttle_time_ms, context.connection.principal, context.client_id, context.size_bytes)
        ensure(before == after, f"{before} became {after}")


def charges_from_several_threads(case: _ThrottleCase) -> None:
    """All methods are called from several threads concurrently."""
    with case.opened() as throttle:
        contexts = _requests(case)

        def one(number: int) -> None:
            context = contexts[number % len(contexts)]
            throttle.charge(context, number, 0.001)
            throttle.charge_records(context, number)
            throttle.charge_mutations(context, 1, False)

        from_threads("charge", one)


THROTTLE_RULES: Final = rules_of(_ThrottleCase)
