"""`check_sasl_mechanism` and `check_credential_store`, which check parts of the authenticator `sasl`."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NoReturn

from klamm.api.sasl import (
    CredentialStore,
    SaslChallenge,
    SaslContext,
    SaslError,
    SaslMechanism,
    SaslServer,
    SaslSuccess,
    SaslTask,
)
from klamm.api.sessions import SessionRegistry
from klamm.shared.principal import ANONYMOUS, KafkaPrincipal
from klamm.shared.scram import ScramCredential, ScramMechanism
from klamm.testing.conformance import rules
from klamm.testing.conformance.authentication import garbage
from klamm.testing.conformance.life_cycle import PartCase, ServerPartCase, rules_of
from klamm.testing.conformance.playbooks import Playbook, answered
from klamm.testing.conformance.rules import Broken, ensure, from_threads, run_rules, within_patience
from klamm.testing.conformance.silent_transport import SilentTransport

_STRANGE_USERS: Final = ("", "\0", "a" * 5000, "ümläut", "with\nline", "../../etc/passwd", "*", "%s{}")
_LAST_DRAW: Final = 2**64 - 1


class _MechanismCase(ServerPartCase):
    contract = SaslMechanism
    playbooks: Sequence[Playbook] = ()
    proved: KafkaPrincipal = ANONYMOUS
    stores: Callable[[], Sequence[CredentialStore]] = tuple

    def host(self) -> Any:
        super().host()
        stores = tuple(self.stores())
        for store in stores:
            store.open(self.listener.context)
        sessions: SessionRegistry[Any] = SessionRegistry(self.listener.context, lambda connection, reason: None)
        return SaslContext(self.listener.context, stores, sessions)

    def exchange(self, mechanism: SaslMechanism) -> SaslServer:
        """Return the server of a new exchange."""
        server = within_patience("server", mechanism.server, self.listener.connection(), SilentTransport(self.proved))
        ensure(isinstance(server, SaslServer), f"server returned {server!r}")
        return server

    @property
    def good(self) -> list[Playbook]:
        return [one for one in self.playbooks if one.principal is not None]


def check_sasl_mechanism(
    factory: Callable[[Any], SaslMechanism],
    settings: Any = None,
    *,
    playbooks: Sequence[Playbook] = (),
    stores: Callable[[], Sequence[CredentialStore]] = tuple,
    proved: KafkaPrincipal = ANONYMOUS,
    other_settings: Any = None,
) -> None:
    """Check that a SASL mechanism keeps its contract, and that `playbooks` of tokens end as expected; see `check_gate`.

    `stores()` makes the credential stores in which the mechanism looks up users. `proved` is the principal that the
    transport has verified.
    """
    case = _MechanismCase(factory, settings, other_settings)
    case.playbooks, case.stores, case.proved = playbooks, stores, proved
    run_rules(MECHANISM_RULES, case)


def _evaluate(server: SaslServer, token: bytes) -> SaslChallenge | SaslSuccess:
    outcome: Any = within_patience("evaluate", server.evaluate, token)
    if isinstance(outcome, SaslTask):
        run = outcome.run
        outcome = _submitted(outcome) if outcome.submit is not None else run()
    ensure(isinstance(outcome, (SaslChallenge, SaslSuccess)), f"the outcome of a token is {outcome!r}")
    ensure(isinstance(outcome.token, bytes), f"it sends {outcome.token!r}")
    return outcome  # type: ignore[no-any-return]


def _submitted(task: SaslTask) -> Any:
    results: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()

    def run() -> None:
        try:
            outcome = task.run()
        except Exception as error:
            results.put(partial(_raise, error))
        else:
            results.put(lambda: outcome)

    assert task.submit is not None
    task.submit(run)
    try:
        result = results.get(timeout=rules.PATIENCE_S)
    except queue.Empty:
        raise Broken("submit did not have the task run") from None
    return result()


def _raise(error: Exception) -> NoReturn:
    raise error


def _play(server: SaslServer, playbook: Playbook, change: Callable[[bytes], bytes] = bytes) -> SaslSuccess | None:
    """Send the tokens of a playbook, altered by `change`; return the success, or None if the tokens end first.

    Raises SaslError.
    """
    client = playbook.start()
    token = next(client, None)
    while token is not None:
        outcome = _evaluate(server, change(token))
        if isinstance(outcome, SaslSuccess):
            return outcome
        token = answered(client, outcome.token)
    return None


def lets_users_in_that_prove_who_they_are(case: _MechanismCase) -> None:
    """A playbook with a principal ends with a SaslSuccess of that principal."""
    with case.opened() as mechanism:
        for playbook in case.good:
            success = _play(case.exchange(mechanism), playbook)
            ensure(success is not None and success.principal == playbook.principal, f"it ends with {success!r}")


def lets_no_user_in_that_does_not(case: _MechanismCase) -> None:
    """A playbook without a principal ends with SaslError, or without an outcome."""
    with case.opened() as mechanism:
        for playbook in (one for one in case.playbooks if one.principal is None):
            try:
                success = _play(case.exchange(mechanism), playbook)
            except SaslError:
                continue
            ensure(success is None, f"it ends with {success!r}")


def fails_on_garbage_with_sasl_error(case: _MechanismCase) -> None:
    """A garbage token raises SaslError, or gets a challenge; it lets no user of the playbooks in."""
    principals = {one.principal for one in case.good} - {case.proved}
    with case.opened() as mechanism:
        for token in garbage():
            server = case.exchange(mechanism)
            try:
                outcome = _evaluate(server, token)
            except SaslError:
                continue
            finally:
                server.close()
            inside = isinstance(outcome, SaslSuccess) and outcome.principal in principals
            ensure(not inside, f"{token[:20]!r} ends with {outcome!r}")


def takes_no_part_for_the_whole(case: _MechanismCase) -> None:
    """Tokens that are cut short raise SaslError, or do not let the user of the whole in."""
    with case.opened() as mechanism:
        for playbook in (one for one in case.good if one.principal != case.proved):
            for keep in (0.3, 0.6, 0.9):
                try:
                    success = _play(
                        case.exchange(mechanism),
                        playbook,
                        lambda token, keep=keep: token[: int(len(token) * keep)],  # type: ignore[misc]
                    )
                except SaslError:
                    continue
                inside = success is not None and success.principal == playbook.principal
                ensure(not inside, f"{keep:.0%} of each token were enough")


def keeps_exchanges_apart(case: _MechanismCase) -> None:
    """Each exchange has its own server, and is independent of others."""
    with case.opened() as mechanism:
        for playbook in case.good:
            first, second = case.exchange(mechanism), case.exchange(mechanism)
            ensure(first is not second, "two exchanges share a server")
            ensure(_play(second, playbook) is not None, "the second of two does not end well")
            ensure(_play(first, playbook) is not None, "the first of two does not end well")


def describes_success(case: _MechanismCase) -> None:
    """A SaslSuccess has a KafkaPrincipal, and a time of expiry or None. Its proof is not revoked after the login."""
    with case.opened() as mechanism:
        for playbook in case.good:
            server = case.exchange(mechanism)
            success = _play(server, playbook)
            ensure(success is not None, "the login does not end well")
            assert success is not None
            ensure(isinstance(success.principal, KafkaPrincipal), f"the principal is {success.principal!r}")
            ensure(
                success.expires_ms is None or type(success.expires_ms) is int, f"expires_ms is {success.expires_ms!r}"
            )
            ensure(isinstance(server.claimed, str), f"claimed is {server.claimed!r}")
            reason = success.proof.revoked_because() if success.proof is not None else None
            ensure(reason is None, f"a login that has just ended is revoked: {reason!r}")


def closes_at_any_time(case: _MechanismCase) -> None:
    """An exchange may be closed before its first token, and after any later one."""
    with case.opened() as mechanism:
        case.exchange(mechanism).close()
        for playbook in case.playbooks:
            server = case.exchange(mechanism)
            with contextlib.suppress(SaslError):
                _evaluate(server, next(playbook.start()))
            server.close()


MECHANISM_RULES: Final = rules_of(_MechanismCase)


class _StoreCase(PartCase):
    contract = CredentialStore
    passwords: Mapping[str, str] = {}


def check_credential_store(
    factory: Callable[[Any], CredentialStore],
    settings: Any = None,
    *,
    passwords: Mapping[str, str],
    other_settings: Any = None,
) -> None:
    """Check that a credential store keeps its contract; see `check_gate`. `passwords` maps users to passwords."""
    case = _StoreCase(factory, settings, other_settings)
    case.passwords = passwords
    run_rules(STORE_RULES, case)


def _checks(store: CredentialStore, user: str, password: str) -> bool:
    """Check a password as PLAIN does; return True if it is right."""
    verified = store.verify_password(user, password)
    ensure(verified is None or type(verified) is bool, f"verify_password returned {verified!r}")
    if verified is not None:
        return bool(verified)
    for mechanism in ScramMechanism:
        credential = store.scram_credential(user, mechanism)
        if credential is not None:
            return credential.verifies(password)
    return False


def knows_its_users(case: _StoreCase) -> None:
    """The password of each user is right, and any other one is wrong."""
    with case.opened() as store:
        for user, password in case.passwords.items():
            ensure(_checks(store, user, password), f"the password of {user} is refused")
            for wrong in ("", password + "x", password[:-1], password.swapcase() + "!"):
                ensure(not _checks(store, user, wrong), f"a wrong password of {user} is accepted")


def knows_no_other_user(case: _StoreCase) -> None:
    """An unknown user has no credential, and no password is right; no name raises."""
    with case.opened() as store:
        for user in (*_STRANGE_USERS, *(f"{name}x" for name in case.passwords)):
            for mechanism in ScramMechanism:
                found = store.scram_credential(user, mechanism)
                ensure(found is None, f"{user[:20]!r} has {found!r}")
            for password in ("", *case.passwords.values()):
                verified = store.verify_password(user, password)
                ensure(verified is not True, f"a password of {user[:20]!r} is right")


def returns_credentials_of_the_mechanism(case: _StoreCase) -> None:
    """`scram_credential` returns a ScramCredential or None, and equal ones for equal calls.

    `blocking` is True or False.
    """
    with case.opened() as store:
        ensure(store.blocking is True or store.blocking is False, f"blocking is {store.blocking!r}")
        for user in case.passwords:
            for mechanism in ScramMechanism:
                found = [store.scram_credential(user, mechanism) for _ in range(2)]
                ensure(found[0] is None or isinstance(found[0], ScramCredential), f"it returned {found[0]!r}")
                ensure(found[0] == found[1], f"it returned {found[0]!r}, and then {found[1]!r}")


def draws_any_credential(case: _StoreCase) -> None:
    """`any_credential` returns a credential or None for every draw from 0 to 2 ** 64 - 1, and equal ones for equal
    draws.
    """
    with case.opened() as store:
        for mechanism in ScramMechanism:
            for draw in (0, 1, 1 << 63, _LAST_DRAW):
                found = [store.any_credential(mechanism, draw) for _ in range(2)]
                ensure(found[0] is None or isinstance(found[0], ScramCredential), f"draw {draw} returned {found[0]!r}")
                ensure(found[0] == found[1], f"draw {draw} returned {found[0]!r}, and then {found[1]!r}")


def lists_users_without_waiting(case: _StoreCase) -> None:
    """`plain_credentials` returns a mapping of users to credentials, at once, and the same object until it changes."""
    with case.opened() as store:
        users = within_patience("plain_credentials", store.plain_credentials)
        ensure(isinstance(users, Mapping), f"it returned {users!r}")
        for user, credential in users.items():
            ensure(
                isinstance(user, str) and isinstance(credential, ScramCredential), f"it has {user!r}: {credential!r}"
            )
        ensure(not users or users is store.plain_credentials(), "the second call returned another object")


def is_watched(case: _StoreCase) -> None:
    """`watch` accepts a function, and returns at once."""
    with case.opened() as store:
        within_patience("watch", store.watch, lambda users: None)


def looks_up_from_several_threads(case: _StoreCase) -> None:
    """Users are looked up from several threads concurrently."""
    with case.opened() as store:
        users = [*case.passwords, "absent"]
        from_threads(
            "scram_credential",
            lambda number: store.scram_credential(users[number % len(users)], ScramMechanism.SCRAM_SHA_256),
        )


STORE_RULES: Final = rules_of(_StoreCase)
