"""A part that does not fit its contract stops the start, and `klamm check`, with what was expected."""

import pytest

import klamm.acl
import klamm.dispatch
import klamm.sasl
from klamm import ConnectionGate, Provider, RequestObserver, hookimpl
from klamm.acl import Authorizer
from klamm.api.contracts import contract_of, contract_problem
from klamm.api.provider import ProviderKind
from klamm.config.plugin_registry import PluginError
from klamm.testing import EmbeddedServer


class OldAuthorizer(Authorizer):
    """Written after a signature without `log_if_denied`."""

    def authorize(self, context, operation, resource_type, resource_name):
        return True

    def authorize_by_resource_type(self, context, operation, resource_type):
        return True


class HalfGate(ConnectionGate):
    def admit(self, address):
        return None


class Attribute(RequestObserver):
    completed = 7


class OwnWay(RequestObserver):
    """Takes more than it must, by other names."""

    def completed(self, what, *others, also=None):
        pass

    @staticmethod
    def connection_opened(connection):
        pass


class NoGate:
    def __init__(self, settings):
        pass


def make_no_gate(settings):
    return NoGate(settings)


@pytest.mark.parametrize(
    ("made", "contract", "problem"),
    [
        (
            OldAuthorizer,
            Authorizer,
            "OldAuthorizer.authorize(self, context, operation, resource_type, resource_name) does not take what it is"
            " called with: authorize(self, context, operation, resource_type, resource_name, *, log_if_denied=True)",
        ),
        (HalfGate, ConnectionGate, "HalfGate does not define release"),
        (Attribute, RequestObserver, "Attribute.completed must be a method"),
        (NoGate, ConnectionGate, "NoGate is not a ConnectionGate"),
        (OwnWay, RequestObserver, None),
    ],
)
def test_what_is_wrong_with_a_class_is_said(made, contract, problem):
    found = contract_problem(made, contract)
    assert found == (None if problem is None else f"{__name__}.{problem}")


@pytest.mark.parametrize("kind", ProviderKind)
def test_every_kind_of_part_has_a_contract_that_is_public(kind):
    contract = contract_of(kind)
    if kind is ProviderKind.COMMAND:
        assert contract is None
        return
    namespaces = (klamm, klamm.acl, klamm.dispatch, klamm.sasl)
    assert any(vars(namespace).get(contract.__name__) is contract for namespace in namespaces)
    assert contract_problem(contract, contract) is None or contract.__abstractmethods__


class Plugin:
    @hookimpl
    def klamm_connection_gates(self):
        yield Provider("none_at_all", f"{__name__}:NoGate")
        yield Provider("made", f"{__name__}:make_no_gate")

    @hookimpl
    def klamm_authorizers(self):
        yield Provider("old", f"{__name__}:OldAuthorizer")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ('gates=["none_at_all"]', 'the connection gate "none_at_all" of embedded-0: .*NoGate is not a ConnectionGate'),
        ('gates=["made"]', 'the connection gate "made" of embedded-0: .*NoGate is not a ConnectionGate'),
        ("authorizer=old", 'the authorizer "old" of embedded-0: .*OldAuthorizer.authorize.*log_if_denied=True'),
    ],
)
def test_a_part_that_breaks_its_contract_stops_the_start(setting, message):
    server = EmbeddedServer([f"listeners.default.{setting}", "listeners.default.api_set=echo"], plugins=[Plugin()])
    with pytest.raises(Exception, match=message):
        server.start()
    (listener,) = server.plan.listeners
    if "made" not in setting:
        with pytest.raises(PluginError, match=message):
            (listener.authorizer or listener.gates[0]).load()
