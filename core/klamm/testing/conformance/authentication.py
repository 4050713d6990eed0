"""`check_authenticator`, which checks an authenticator with right and wrong logins, given as playbooks."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from klamm.api.api_set import ApiHandler
from klamm.api.authentication import AuthenticationStep, Authenticator, AuthenticatorFactory
from klamm.shared.principal import ANONYMOUS, KafkaPrincipal
from klamm.testing.conformance import rules
from klamm.testing.conformance.life_cycle import PartCase, rules_of
from klamm.testing.conformance.playbooks import Playbook, answered
from klamm.testing.conformance.rules import Broken, ensure, run_rules, within_patience
from klamm.testing.conformance.silent_transport import SilentTransport
from klamm.wire.chunks import Buffer

_MAX_STEPS: Final = 100
_GARBAGE_SEED: Final = 17


def garbage() -> list[bytes]:
    """Return messages of other protocols, and random bytes."""
    draw = random.Random(_GARBAGE_SEED)
    sizes = (0, 1, 2, 8, 64, 1000, 70_000)
    return [bytes(size) for size in sizes] + [draw.randbytes(size) for size in sizes for _ in range(3)]


class _AuthenticatorCase(PartCase):
    contract = AuthenticatorFactory
    playbooks: Sequence[Playbook] = ()
    proved: KafkaPrincipal = ANONYMOUS

    def login(self, factory: AuthenticatorFactory) -> Authenticator:
        """Return the authenticator of a new connection."""
        return factory.authenticator(self.listener.connection(), SilentTransport(self.proved))

    @property
    def good(self) -> list[Playbook]:
        return [one for one in self.playbooks if one.principal is not None]


def check_authenticator(
    factory: Callable[[Any], AuthenticatorFactory],
    settings: Any = None,
    *,
    playbooks: Sequence[Playbook] = (),
    proved: KafkaPrincipal = ANONYMOUS,
    other_settings: Any = None,
) -> None:
    """Check that an authenticator keeps its contract, and that `playbooks` end as expected; see `check_gate`.

    `proved` is the principal that the transport has verified. Without playbooks, most rules cannot check anything.
    """
    case = _AuthenticatorCase(factory, settings, other_settings)
    case.playbooks, case.proved = playbooks, proved
    run_rules(AUTHENTICATOR_RULES, case)


def _receive(authenticator: Authenticator, frame: Buffer) -> AuthenticationStep:
    """Return the outcome of a frame, after all pending steps."""
    step = within_patience("receive", authenticator.receive, frame)
    for _ in range(_MAX_STEPS):
        _check_step(step)
        if step.pending is None:
            return step
        resumed = threading.Event()
        step.pending(resumed.set)
        ensure(resumed.wait(rules.PATIENCE_S), "a pending step did not call resume")
        step = within_patience("resume", authenticator.resume)
    raise Broken("its steps never stop being pending")


def _check_step(step: Any) -> None:
    ensure(isinstance(step, AuthenticationStep), f"a step is {step!r}")
    ensure(all(isinstance(one, (bytes, bytearray, memoryview)) for one in step.send), f"it sends {step.send!r}")
    ensure(step.complete is True or step.complete is False, f"complete is {step.complete!r}")
    ensure(step.failed is None or (isinstance(step.failed, str) and step.failed), f"failed is {step.failed!r}")
    ensure(not (step.complete and step.failed), f"it is complete and has failed: {step!r}")
    ensure(step.pending is None or not (step.complete or step.failed), f"it is pending and has an outcome: {step!r}")


def _play(
    authenticator: Authenticator, playbook: Playbook, change: Callable[[bytes], Buffer] = bytes
) -> AuthenticationStep | None:
    """Send the messages of a playbook, altered by `change`; return the last step, or None if there was no message."""
    client = playbook.start()
    step, frame = None, next(client, None)
    while frame is not None:
        step = _receive(authenticator, change(frame))
        if step.complete or step.failed:
            break
        frame = answered(client, b"".join(bytes(one) for one in step.send))
    return step


def is_made_for_each_connection(case: _AuthenticatorCase) -> None:
    """`authenticator` returns an Authenticator, a new one for each connection, whose `complete` is True or False."""
    with case.opened() as factory:
        first, second = case.login(factory), case.login(factory)
        ensure(isinstance(first, Authenticator), f"it returned {first!r}")
        ensure(first is not second, "two connections share an authenticator")
        ensure(first.complete is True or first.complete is False, f"complete is {first.complete!r}")


def describes_its_limits(case: _AuthenticatorCase) -> None:
    """`security_protocol` is "" or "SASL_", `max_receive_bytes` a number or None, and `handlers` has ApiHandlers."""
    with case.opened() as factory:
        ensure(factory.security_protocol in ("", "SASL_"), f"security_protocol is {factory.security_protocol!r}")
        limit = factory.max_receive_bytes
        ensure(limit is None or (type(limit) is int and limit > 0), f"max_receive_bytes is {limit!r}")
        ensure(all(isinstance(one, ApiHandler) for one in factory.handlers()), "a handler is not an ApiHandler")


def lets_clients_in_that_prove_who_they_are(case: _AuthenticatorCase) -> None:
    """A playbook with a principal ends with a step that is complete, and that principal."""
    with case.opened() as factory:
        for playbook in case.good:
            authenticator = case.login(factory)
            step = _play(authenticator, playbook)
            ensure(step is not None and step.complete, f"the last step is {step!r}")
            ensure(authenticator.complete is True, "the step is complete, and the authenticator is not")
            ensure(authenticator.principal == playbook.principal, f"the principal is {authenticator.principal}")


def lets_no_client_in_that_does_not(case: _AuthenticatorCase) -> None:
    """A playbook without a principal never completes."""
    with case.opened() as factory:
        for playbook in (one for one in case.playbooks if one.principal is None):
            authenticator = case.login(factory)
            step = _play(authenticator, playbook)
            complete = authenticator.complete or (step is not None and step.complete)
            ensure(not complete, f"the client is in, as {authenticator.principal}")


def survives_garbage(case: _AuthenticatorCase) -> None:
    """If the first frame is garbage, no client gets in as the principal of a playbook.

    The authenticator raises an Exception, or better returns a failed step.
    """
    principals = {one.principal for one in case.good} - {case.proved}
    with case.opened() as factory:
        for frame in garbage():
            authenticator = case.login(factory)
            if authenticator.complete:
                return
            try:
                step = _receive(authenticator, frame)
            except Broken:
                raise
            except Exception:
                continue
            if step.complete or authenticator.complete:
                ensure(authenticator.principal not in principals, f"{frame[:20]!r} let {authenticator.principal} in")
            authenticator.close()


def takes_no_part_for_the_whole(case: _AuthenticatorCase) -> None:
    """Truncated frames do not let the client in as the principal of the complete ones."""
    with case.opened() as factory:
        for playbook in (one for one in case.good if one.principal != case.proved):
            for keep in (0.0, 0.3, 0.6, 0.9):
                authenticator = case.login(factory)
                try:
                    step = _play(authenticator, playbook, lambda frame, keep=keep: frame[: int(len(frame) * keep)])  # type: ignore[misc]
                except Broken:
                    raise
                except Exception:
                    continue
                if step is not None and step.complete:
                    ensure(authenticator.principal != playbook.principal, f"{keep:.0%} of each frame were enough")


def keeps_connections_apart(case: _AuthenticatorCase) -> None:
    """A client's proof lets no other client in."""
    with case.opened() as factory:
        for playbook in case.good:
            waiting = case.login(factory)
            if waiting.complete:
                return
            _play(case.login(factory), playbook)
            ensure(waiting.complete is False, "another connection is complete, too")


def takes_any_buffer(case: _AuthenticatorCase) -> None:
    """A frame may be bytes, a bytearray or a memoryview."""
    with case.opened() as factory:
        for kind in (bytearray, lambda frame: memoryview(bytes(frame))):
            for playbook in case.good:
                authenticator = case.login(factory)
                step = _play(authenticator, playbook, kind)
                ensure(step is not None and step.complete, f"the last step is {step!r}")


def says_when_sessions_end(case: _AuthenticatorCase) -> None:
    """`session_expires_ns` is a time or None, and `reauthenticates` answers True or False for every API."""
    with case.opened() as factory:
        for playbook in case.good:
            authenticator = case.login(factory)
            _play(authenticator, playbook)
            expires = authenticator.session_expires_ns
            ensure(expires is None or type(expires) is int, f"session_expires_ns is {expires!r}")
            for api_key in range(-1, 120):
                again = authenticator.reauthenticates(api_key)
                ensure(again is True or again is False, f"reauthenticates({api_key}) returned {again!r}")


def closes_at_any_time(case: _AuthenticatorCase) -> None:
    """A connection may be closed after any number of frames."""
    with case.opened() as factory:
        for playbook in case.playbooks:
            for frames in range(4):
                authenticator = case.login(factory)
                client, frame = playbook.start(), None
                frame = next(client, None)
                for _ in range(frames):
                    if frame is None:
                        break
                    step = _receive(authenticator, frame)
                    frame = None
                    if not (step.complete or step.failed):
                        frame = answered(client, b"".join(bytes(one) for one in step.send))
                authenticator.close()


AUTHENTICATOR_RULES: Final = rules_of(_AuthenticatorCase)
