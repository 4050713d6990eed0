"""The contract of each kind of provider, and whether a class fulfils it."""

from __future__ import annotations

import importlib
import inspect
from typing import Any, Final

from klamm.api.provider import ProviderKind

# Imported when a part of that kind is loaded: a server without SASL does not import the contracts of SASL.
_CONTRACTS: Final = {
    ProviderKind.TRANSPORT: "klamm.api.transport:Transport",
    ProviderKind.AUTHENTICATOR: "klamm.api.authentication:AuthenticatorFactory",
    ProviderKind.SASL_MECHANISM: "klamm.api.sasl:SaslMechanism",
    ProviderKind.CREDENTIAL_STORE: "klamm.api.sasl:CredentialStore",
    ProviderKind.CONNECTION_GATE: "klamm.api.gates:ConnectionGate",
    ProviderKind.THROTTLE: "klamm.api.throttles:Throttle",
    ProviderKind.AUTHORIZER: "klamm.api.authorizer:Authorizer",
    ProviderKind.API_SET: "klamm.api.api_set:ApiSet",
    ProviderKind.REQUEST_FILTER: "klamm.api.filters:RequestFilter",
    ProviderKind.REQUEST_OBSERVER: "klamm.api.observer:RequestObserver",
    ProviderKind.PROCESSOR_ASSIGNER: "klamm.api.dispatch:ProcessorAssigner",
    ProviderKind.REQUEST_SCHEDULER: "klamm.api.dispatch:RequestScheduler",
    ProviderKind.EXTENSION: "klamm.api.extension:ServerExtension",
}


def contract_of(kind: ProviderKind) -> type | None:
    """The class that parts of the kind derive from; None for commands, which are functions."""
    path = _CONTRACTS.get(kind)
    if path is None:
        return None
    module, _, name = path.partition(":")
    contract: type = getattr(importlib.import_module(module), name)
    return contract


def contract_problem(made: type, contract: type) -> str | None:
    """Why a class cannot be used as a part, in one sentence; None if it can.

    Every method that it overrides must take the arguments that the server calls it with, by position and by name.
    """
    where = f"{made.__module__}.{made.__qualname__}"
    if not issubclass(made, contract):
        return f"{where} is not a {contract.__name__}"
    missing: frozenset[str] = getattr(made, "__abstractmethods__", frozenset())
    if missing:
        return f"{where} does not define {', '.join(sorted(missing))}"
    for name, expected in _methods(contract):
        found = inspect.getattr_static(made, name)
        if found is expected or isinstance(found, (classmethod, staticmethod)):
            continue
        if not callable(found):
            return f"{where}.{name} must be a method"
        if not _takes(found, inspect.signature(expected)):
            return (
                f"{where}.{name}{inspect.signature(found)} does not take what it is called with:"
                f" {name}{_without_annotations(inspect.signature(expected))}"
            )
    return None


def _methods(contract: type) -> list[tuple[str, Any]]:
    return [
        (name, value)
        for name, value in ((name, inspect.getattr_static(contract, name)) for name in dir(contract))
        if not name.startswith("_") and inspect.isfunction(value)
    ]


def _takes(found: Any, expected: inspect.Signature) -> bool:
    """Whether it accepts calls with all arguments of a signature, and calls with the required ones only."""
    try:
        actual = inspect.signature(found)
    except (TypeError, ValueError):
        return True
    for required_only in (False, True):
        parameters = [
            one for one in expected.parameters.values() if not required_only or one.default is inspect.Parameter.empty
        ]
        by_name = {one.name: None for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY}
        try:
            actual.bind(*(None for _ in range(len(parameters) - len(by_name))), **by_name)
        except TypeError:
            return False
    return True


def _without_annotations(signature: inspect.Signature) -> inspect.Signature:
    parameters = [one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()]
    return inspect.Signature(parameters)
