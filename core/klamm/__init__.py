"""klamm: a server framework for the Kafka wire protocol.

This namespace has the names that most plugins need; `docs/stability.md` lists them.

Further public namespaces: `klamm.acl`, `klamm.sasl`, `klamm.dispatch`, `klamm.filters`, `klamm.forwarding`,
`klamm.config`, `klamm.http`, `klamm.metrics`, `klamm.runtime`, `klamm.shared`, `klamm.testing`, and every module of
`klamm.wire`.
"""

from typing import TYPE_CHECKING

import klamm.compiled  # noqa: F401 - first, because it chooses how the other modules are loaded
from klamm.api.api_set import ApiHandler, ApiSet, bind_handlers, handles
from klamm.api.authentication import AuthenticationStep, Authenticator, AuthenticatorFactory
from klamm.api.context import Address, ConnectionContext, ListenerContext, RequestContext, ServerContext, ServerServices
from klamm.api.extension import ServerExtension
from klamm.api.filters import Answer, RequestFilter
from klamm.api.gates import Admission, ConnectionGate, Delay, Refuse
from klamm.api.hookspecs import hookimpl
from klamm.api.observer import RequestEvent, RequestObserver, RequestOutcome, StageTimes
from klamm.api.part import ListenerPart, Part
from klamm.api.pending import Pending
from klamm.api.provider import Provider, ProviderKind
from klamm.api.sessions import SessionRegistry
from klamm.api.throttles import Throttle
from klamm.api.transport import END_OF_STREAM, WOULD_BLOCK, HandshakeError, Interest, Transport, TransportLayer
from klamm.config.problems import ConfigError
from klamm.config.setting import setting
from klamm.logs.escaping import clipped, escape_control_characters
from klamm.logs.rate_limited import RateLimitedLog
from klamm.shared.admin_events import AdminEvent
from klamm.shared.principal import ANONYMOUS, KafkaPrincipal
from klamm.shared.version import __version__
from klamm.wire.chunks import Buffer
from klamm.wire.errors import ErrorCode, KafkaError

__all__ = [
    "ANONYMOUS",
    "Address",
    "AdminEvent",
    "Admission",
    "Answer",
    "ApiHandler",
    "ApiSet",
    "AuthenticationStep",
    "Authenticator",
    "AuthenticatorFactory",
    "Buffer",
    "ConfigError",
    "ConnectionContext",
    "ConnectionGate",
    "Delay",
    "END_OF_STREAM",
    "ErrorCode",
    "HandshakeError",
    "Interest",
    "KafkaError",
    "KafkaPrincipal",
    "ListenerContext",
    "ListenerPart",
    "Part",
    "Pending",
    "Provider",
    "ProviderKind",
    "RateLimitedLog",
    "Refuse",
    "RequestContext",
    "RequestEvent",
    "RequestFilter",
    "RequestObserver",
    "RequestOutcome",
    "ServerContext",
    "ServerExtension",
    "ServerServices",
    "SessionRegistry",
    "StageTimes",
    "Throttle",
    "Transport",
    "TransportLayer",
    "WOULD_BLOCK",
    "__version__",
    "bind_handlers",
    "clipped",
    "escape_control_characters",
    "handles",
    "hookimpl",
    "setting",
]

_NAMESPACES = ("acl", "sasl", "dispatch", "filters", "forwarding", "config", "metrics", "runtime", "shared", "testing")

if not TYPE_CHECKING:

    def __getattr__(name):
        """Return a name that belongs to another namespace, with a DeprecationWarning that names that namespace."""
        if not name.startswith("_") and name not in _NAMESPACES:
            from importlib import import_module

            from klamm.shared.deprecation import warn_deprecated

            for namespace in _NAMESPACES:
                module = import_module(f"klamm.{namespace}")
                if name in module.__all__:
                    warn_deprecated(f"klamm.{name}", f"import it from klamm.{namespace}")
                    return getattr(module, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
