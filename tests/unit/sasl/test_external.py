"""EXTERNAL: the principal of the transport."""

import pytest

from klamm import ANONYMOUS, KafkaPrincipal
from klamm_sasl.external import ExternalMechanism
from tests.unit.network.fakes import QuietTransport
from tests.unit.sasl.playbook import Playbook

CERTIFIED = KafkaPrincipal("CN=alice")


class ProvingTransport(QuietTransport):
    def __init__(self, principal):
        self._principal = principal

    @property
    def principal(self):
        return self._principal


def proving(principal):
    book = Playbook({"EXTERNAL": ExternalMechanism()})
    book.authenticator._transport = ProvingTransport(principal)
    book.handshake("EXTERNAL")
    return book


@pytest.mark.parametrize("token", [b"", b"CN=alice"])
def test_the_principal_of_the_transport(token):
    book = proving(CERTIFIED)
    assert book.token(token)[0].complete
    assert book.authenticator.principal == CERTIFIED


@pytest.mark.parametrize(("principal", "token"), [(ANONYMOUS, b""), (ANONYMOUS, b"ANONYMOUS"), (CERTIFIED, b"CN=bob")])
def test_another_principal_is_refused(principal, token):
    book = proving(principal)
    assert book.token(token)[0].failed
    assert not book.authenticator.complete
