"""Users for tests: a credential store that a test fills, and clients of mechanisms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from klamm.sasl import CredentialStore, SaslContext, SaslMechanism, ScramCredential, ScramMechanism
from klamm_sasl.stores.user_table import UserTable
from tests.unit.sasl.playbook import Playbook

SALT = b"0123456789abcdefghijklmn"


def credential(password: str, mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_256, **how) -> ScramCredential:
    """Return a verifier of a password that is cheap to compute."""
    return ScramCredential.from_password(mechanism, password, how.get("salt", SALT), how.get("iterations", 4096))


class DictStore(CredentialStore):
    """A credential store with the users and passwords of a test."""

    def __init__(self, entries: Iterable[tuple[str, ScramCredential]], *, blocking: bool = False) -> None:
        super().__init__()
        self.table = UserTable(entries)
        self.blocking = blocking
        self.asked = 0

    def scram_credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        self.asked += 1
        return self.table.find(user, mechanism)

    def any_credential(self, mechanism: ScramMechanism, draw: int) -> ScramCredential | None:
        return self.table.draw(mechanism, draw)

    def plain_credentials(self) -> Mapping[str, ScramCredential]:
        return self.table.plain


class Silent(CredentialStore):
    """A credential store without users."""

    def scram_credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        return None


def listening(name: str, mechanism: SaslMechanism, *stores: CredentialStore, **settings) -> Playbook:
    """Return a connection to a listener with one mechanism, after the handshake."""
    playbook = Playbook({name: mechanism}, **settings)
    mechanism.open(SaslContext(playbook.listener, stores, playbook.sessions))
    _, response = playbook.handshake(name)
    assert response.error_code == 0
    return playbook


def reconnected(playbook: Playbook) -> Playbook:
    """Return another connection to the same listener."""
    other = Playbook(playbook.mechanisms, beside=playbook)
    other.handshake(next(iter(playbook.mechanisms)))
    return other
