"""Tests of the mechanism EXTERNAL, which uses the principal of the transport."""

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
    playbook = Playbook({"EXTERNAL": ExternalMechanism()})
    playbook.authenticator._transport = ProvingTransport(principal)
    playbook.handshake("EXTERNAL")
    return playbook


@pytest.mark.parametrize("token", [b"", b"CN=alice"])
def test_principal_of_the_transport_is_accepted(token):
    playbook = proving(CERTIFIED)
    assert playbook.token(token)[0].complete
    assert playbook.authenticator.principal == CERTIFIED


@pytest.mark.parametrize(("principal", "token"), [(ANONYMOUS, b""), (ANONYMOUS, b"ANONYMOUS"), (CERTIFIED, b"CN=bob")])
def test_another_principal_is_refused(principal, token):
    playbook = proving(principal)
    assert playbook.token(token)[0].failed
    assert not playbook.authenticator.complete
