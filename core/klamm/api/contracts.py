"""The contract of each kind of provider, and the check that a class fulfils its contract."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Collection
from typing import Any, Final

from klamm.api.provider import ProviderKind

HANDLES: Final = "__klamm_handles__"
"""The attribute that `klamm.handles` sets on a function."""

# klamm imports a contract when it loads a part of that kind: a server without SASL imports no contract of SASL.
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
    """Return the class that parts of the kind derive from; None for commands, which are functions."""
    path = _CONTRACTS.get(kind)
    if path is None:
        return None
    module, _, name = path.partition(":")
    contract: type = getattr(importlib.import_module(module), name)
    return contract


def contract_problem(made: type, contract: type) -> str | None:
    """Return the reason why a class cannot be used as a part, in one sentence; None if it can.

    Every overridden method must accept the arguments that the server passes, by position and by name. A property of the
    contract must be a property of the class. A method that `klamm.handles` marks must accept a request and its context.
    The name of any other method must not look like a misspelled callback.
    """
    where = f"{made.__module__}.{made.__qualname__}"
    if not issubclass(made, contract):
        return f"{where} is not a {contract.__name__}"
    problem = _misspelled(made, contract)
    if problem is not None:
        return f"{where}.{problem}"
    missing: frozenset[str] = getattr(made, "__abstractmethods__", frozenset())
    if missing:
        return f"{where} does not define {', '.join(sorted(missing))}"
    for name, expected in _callbacks(contract):
        found = inspect.getattr_static(made, name)
        if found is expected:
            continue
        problem = _property_problem(found) if isinstance(expected, property) else _method_problem(found, expected, name)
        if problem is not None:
            return f"{where}.{name}{problem}"
    for name in dir(made):
        function = inspect.getattr_static(made, name)
        if inspect.isfunction(function) and hasattr(function, HANDLES):
            problem = _call_problem(function, _HANDLER, name)
            if problem is not None:
                return f"{where}.{name}{problem}"
    return None


def factory_problem(factory: object, contract: type, arguments: int, named: Collection[str]) -> str | None:
    """Return the reason why a provider's factory cannot make a part; None if it can.

    The server calls the factory with `arguments` positional arguments and the `named` ones.
    """
    if isinstance(factory, type):
        problem = contract_problem(factory, contract)
        if problem is not None:
            return problem
    elif not callable(factory):
        return f"its factory must be a {contract.__name__} class, or a function that returns one, not {factory!r}"
    if _binds(factory, arguments, named):
        return None
    name = getattr(factory, "__qualname__", repr(factory))
    called = ", ".join([*("settings", "capacity")[:arguments], *(f"{one}=…" for one in named)])
    return f"{getattr(factory, '__module__', '')}.{name} cannot be called as {name}({called})"


def command_problem(command: object) -> str | None:
    """Return the reason why an object cannot be a subcommand of `klamm`; None if it can."""
    if not callable(command):
        return f"its factory must be a function (arguments: list[str]) -> int, not {command!r}"
    if not _binds(command, 1, ()):
        return f"{command!r} must accept one argument, the list of arguments"
    return None


def handler_problem(function: Callable[..., Any], leading: int) -> str | None:
    """Return the reason why a function cannot handle requests; None if it can.

    The function gets `leading` arguments before the request and its context.
    """
    if inspect.iscoroutinefunction(function):
        return _ASYNC
    if _binds(function, leading + 2, ()):
        return None
    return f"{inspect.signature(function)} must accept the arguments (…, request, context)"


_ASYNC: Final = " is async, but the server calls it on a thread and awaits nothing"


_NEAR: Final = 0.85
"""Names with at least this ratio of `difflib` count as misspellings of each other: about one wrong letter in ten."""
_FEW_LETTERS: Final = 3


def _misspelled(made: type, contract: type) -> str | None:
    """Return the problem with a method whose name is probably a misspelled callback; None if there is no such method.

    Most callbacks are optional, so no other check notices the mistake.
    """
    known = set(dir(contract))
    own: dict[str, Any] = {}
    for each in made.__mro__:
        if not issubclass(contract, each):
            own.update((name, value) for name, value in vars(each).items() if name not in known and name[0] != "_")
    for callback, expected in _callbacks(contract) if own else ():
        for name, found in own.items():
            if _may_be_meant_for(expected, found) and _is_like(name, callback):
                what = "property" if isinstance(expected, property) else "method"
                return (
                    f'{name}: the server calls no such {what}; did you mean "{callback}"? '
                    "If it is your own, begin its name with _"
                )
    return None


def _is_like(name: str, callback: str) -> bool:
    some, others = (one.lower().replace("_", "") for one in (name, callback))
    if abs(len(some) - len(others)) > _FEW_LETTERS or len(set(some) ^ set(others)) > _FEW_LETTERS:
        return False
    # Imported here because the import takes longer than the rest of this check.
    from difflib import SequenceMatcher

    return SequenceMatcher(None, some, others).ratio() >= _NEAR


def _may_be_meant_for(expected: Any, found: Any) -> bool:
    """Return True if both are methods, or if a property or value stands for a property.

    False for handlers, because handlers may have any name.
    """
    is_function = isinstance(found, (classmethod, staticmethod)) or inspect.isfunction(found)
    return not hasattr(found, HANDLES) and is_function != isinstance(expected, property)


def _handler(self: Any, request: Any, context: Any) -> Any: ...


_HANDLER: Final = _handler


def _property_problem(found: Any) -> str | None:
    if inspect.isfunction(found) or isinstance(found, (classmethod, staticmethod)):
        return " must be a property or a value: decorate it with @property"
    return None


def _method_problem(found: Any, expected: Any, name: str) -> str | None:
    if isinstance(found, (classmethod, staticmethod)):
        return _call_problem(found.__func__, expected, name, bound=isinstance(found, staticmethod))
    if not callable(found):
        return " must be a method"
    return _call_problem(found, expected, name)


def _call_problem(found: Any, expected: Any, name: str, *, bound: bool = False) -> str | None:
    signature = inspect.signature(expected)
    if inspect.iscoroutinefunction(found):
        return _ASYNC
    if _takes(found, _without_first(signature) if bound else signature):
        return None
    return f"{_signature_of(found)} must accept the call {name}{_without_annotations(signature)}"


def _binds(function: Any, arguments: int, named: Collection[str]) -> bool:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*(None for _ in range(arguments)), **dict.fromkeys(named))
    except TypeError:
        return False
    return True


def _signature_of(found: Any) -> str:
    return str(inspect.signature(found))


def _without_first(signature: inspect.Signature) -> inspect.Signature:
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def _callbacks(contract: type) -> list[tuple[str, Any]]:
    return [
        (name, value)
        for name, value in ((name, inspect.getattr_static(contract, name)) for name in dir(contract))
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
    ]


def _takes(found: Any, expected: inspect.Signature) -> bool:
    """Return True if a callable accepts calls with all arguments of a signature, and with only the required ones."""
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
