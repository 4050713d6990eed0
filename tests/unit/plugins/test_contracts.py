"""A part that does not fit its contract stops the start and `klamm check`. The error names the expected form."""

import pytest

import klamm.acl
import klamm.dispatch
import klamm.sasl
from klamm import ApiSet, ConnectionGate, Provider, RequestFilter, RequestObserver, bind_handlers, handles, hookimpl
from klamm.acl import Authorizer
from klamm.api.contracts import command_problem, contract_of, contract_problem
from klamm.api.provider import ProviderKind
from klamm.config.plugin_registry import PluginError, PluginRegistry, load_factory
from klamm.testing import EmbeddedServer
from klamm.wire.messages import metadata


class OldAuthorizer(Authorizer):
    """An authorizer with an older signature, without `log_if_denied`."""

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
    """An authorizer with more parameters than required, under other names."""

    def completed(self, what, *others, also=None):
        pass

    @staticmethod
    def connection_opened(connection):
        pass


class Upright(RequestFilter):
    """An authenticator that has a method instead of a property."""

    def api_keys(self):
        return (3,)


class Plain(RequestFilter):
    api_keys = (3,)


class Static(RequestObserver):
    @staticmethod
    def connection_opened(connection, more):
        pass


class Awaited(RequestObserver):
    async def completed(self, event):
        pass


class Short(ApiSet):
    @handles(metadata, versions=metadata.VERSIONS)
    def metadata(self, request):
        pass


class Slow(ApiSet):
    @handles(metadata, versions=metadata.VERSIONS)
    async def metadata(self, request, context):
        pass


class Misspelled(RequestFilter):
    api_keys = (3,)

    def on_requst(self, request, context):
        return None


class MisspelledProperty(RequestFilter):
    api_key = (3,)


class CamelCase(RequestObserver):
    @staticmethod
    def connectionOpened(connection):
        pass


class Inherits(Misspelled):
    pass


class MisspelledAndMissing(ConnectionGate):
    def admit(self, address):
        return None

    def relase(self, address):
        pass


class OwnNames(ApiSet):
    """A handler set whose own methods, properties and handlers resemble no callback, or are private."""

    _closed = False
    closing = 1

    @property
    def closed(self):
        return self._closed

    def _connection_close(self):
        pass

    def connections_of(self, principal):
        pass

    @handles(metadata, versions=metadata.VERSIONS)
    def descrbe(self, request, context):
        pass


class NoSettings(ConnectionGate):
    def __init__(self):
        pass

    def admit(self, address):
        return None

    def release(self, address):
        pass


def two(settings, more):
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
            "OldAuthorizer.authorize(self, context, operation, resource_type, resource_name) must accept the"
            " call authorize(self, context, operation, resource_type, resource_name, *, log_if_denied=True)",
        ),
        (HalfGate, ConnectionGate, "HalfGate does not define release"),
        (Attribute, RequestObserver, "Attribute.completed must be a method"),
        (NoGate, ConnectionGate, "NoGate is not a ConnectionGate"),
        (OwnWay, RequestObserver, None),
        (Upright, RequestFilter, "Upright.api_keys must be a property or a value: decorate it with @property"),
        (Plain, RequestFilter, None),
        (
            Static,
            RequestObserver,
            "Static.connection_opened(connection, more) must accept the call connection_opened(self, connection)",
        ),
        (
            Awaited,
            RequestObserver,
            "Awaited.completed is async, but the server calls it on a thread and awaits nothing",
        ),
        (
            Short,
            ApiSet,
            "Short.metadata(self, request) must accept the call metadata(self, request, context)",
        ),
        (
            Misspelled,
            RequestFilter,
            'Misspelled.on_requst: the server calls no such method; did you mean "on_request"?'
            " If it is your own, begin its name with _",
        ),
        (
            MisspelledProperty,
            RequestFilter,
            'MisspelledProperty.api_key: the server calls no such property; did you mean "api_keys"?'
            " If it is your own, begin its name with _",
        ),
        (
            CamelCase,
            RequestObserver,
            'CamelCase.connectionOpened: the server calls no such method; did you mean "connection_opened"?'
            " If it is your own, begin its name with _",
        ),
        (
            Inherits,
            RequestFilter,
            'Inherits.on_requst: the server calls no such method; did you mean "on_request"?'
            " If it is your own, begin its name with _",
        ),
        (
            MisspelledAndMissing,
            ConnectionGate,
            'MisspelledAndMissing.relase: the server calls no such method; did you mean "release"?'
            " If it is your own, begin its name with _",
        ),
        (OwnNames, ApiSet, None),
        (Slow, ApiSet, "Slow.metadata is async, but the server calls it on a thread and awaits nothing"),
    ],
)
def test_the_problem_of_a_class_is_reported(made, contract, problem):
    found = contract_problem(made, contract)
    assert found == (None if problem is None else f"{__name__}.{problem}")


@pytest.mark.parametrize("kind", ProviderKind)
def test_every_kind_of_part_has_a_public_contract(kind):
    contract = contract_of(kind)
    if kind is ProviderKind.COMMAND:
        assert contract is None
        return
    namespaces = (klamm, klamm.acl, klamm.dispatch, klamm.sasl)
    public = [getattr(each, contract.__name__) for each in namespaces if contract.__name__ in each.__all__]
    assert public == [contract]
    assert contract_problem(contract, contract) is None or contract.__abstractmethods__


OWN = [
    (kind, one)
    for kind in ProviderKind
    for one in PluginRegistry(environment={"KLAMM_LOAD_PLUGINS": ""}).providers(kind)
]


@pytest.mark.parametrize(("kind", "found"), OWN, ids=lambda one: getattr(one, "name", None) or one.provider.name)
def test_klamms_own_parts_fit_their_contracts(kind, found):
    """A start does not check klamm's own parts."""
    assert found.source.distribution == "klamm"
    if found.provider.name == "GSSAPI":
        pytest.importorskip("gssapi", reason="of an extra")
    factory = load_factory(found)
    contract = contract_of(kind)
    if contract is None:
        assert command_problem(factory) is None
    elif isinstance(factory, type):
        assert contract_problem(factory, contract) is None
    else:
        assert callable(factory)


class Plugin:
    @hookimpl
    def klamm_connection_gates(self):
        yield Provider("none_at_all", f"{__name__}:NoGate")
        yield Provider("made", f"{__name__}:make_no_gate")
        yield Provider("text", f"{__name__}:__name__")
        yield Provider("no_settings", f"{__name__}:NoSettings")
        yield Provider("two", f"{__name__}:two")

    @hookimpl
    def klamm_authorizers(self):
        yield Provider("old", f"{__name__}:OldAuthorizer")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ('gates=["none_at_all"]', 'the connection gate "none_at_all" of embedded-0: .*NoGate is not a ConnectionGate'),
        ('gates=["made"]', 'the connection gate "made" of embedded-0: .*NoGate is not a ConnectionGate'),
        ('gates=["text"]', "must be a ConnectionGate class, or a function that returns one, not 'tests"),
        ('gates=["no_settings"]', r"NoSettings cannot be called as NoSettings\(settings\)"),
        ('gates=["two"]', r"two cannot be called as two\(settings\)"),
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


def test_a_handler_in_a_module_of_its_own_is_checked_at_the_start():
    @handles(metadata, versions=metadata.VERSIONS)
    def alone(request, context):
        pass

    assert list(bind_handlers([alone]))
    with pytest.raises(TypeError, match=r"alone\(request, context\) must accept the arguments"):
        list(bind_handlers([alone], "a broker"))
