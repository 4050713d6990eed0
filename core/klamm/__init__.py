"""klamm: a server framework for the Kafka wire protocol. What plugins import from here is the public surface."""

from klamm.api_set import LATER, NO_RESPONSE, ApiHandler, ApiSet, Pending, bind_handlers, handles
from klamm.clock import Clock, ManualClock, SystemClock
from klamm.config.setting import SettingSpec, setting, specs_of
from klamm.context import Address, ConnectionContext, ListenerContext, RequestContext, ServerContext
from klamm.contracts import (
    END_OF_STREAM,
    WOULD_BLOCK,
    Admission,
    AuthenticationStep,
    Authenticator,
    AuthenticatorFactory,
    Buffer,
    ConnectionGate,
    Delay,
    Interest,
    ListenerPart,
    ProcessorAssigner,
    Refuse,
    RequestEvent,
    RequestObserver,
    RequestScheduler,
    Throttle,
    Transport,
    TransportLayer,
)
from klamm.hookspecs import hookimpl
from klamm.provider import Provider
from klamm.purgatory import DelayedOperation, Purgatory
from klamm.scheduler import Scheduler, Timer
from klamm.security import ANONYMOUS, KafkaPrincipal
from klamm.version import __version__
from klamm.wire.errors import ErrorCode, KafkaError

__all__ = [
    "ANONYMOUS",
    "END_OF_STREAM",
    "LATER",
    "NO_RESPONSE",
    "WOULD_BLOCK",
    "Address",
    "Admission",
    "ApiHandler",
    "ApiSet",
    "AuthenticationStep",
    "Authenticator",
    "AuthenticatorFactory",
    "Buffer",
    "Clock",
    "ConnectionContext",
    "ConnectionGate",
    "DelayedOperation",
    "Delay",
    "ErrorCode",
    "Interest",
    "KafkaError",
    "KafkaPrincipal",
    "ListenerContext",
    "ListenerPart",
    "ManualClock",
    "Pending",
    "ProcessorAssigner",
    "Provider",
    "Purgatory",
    "Refuse",
    "RequestContext",
    "RequestEvent",
    "RequestObserver",
    "RequestScheduler",
    "Scheduler",
    "ServerContext",
    "SettingSpec",
    "SettingSpec",
    "SystemClock",
    "Throttle",
    "Timer",
    "Transport",
    "TransportLayer",
    "__version__",
    "bind_handlers",
    "handles",
    "hookimpl",
    "setting",
    "specs_of",
    "specs_of",
]
