"""klamm: a server framework for the Kafka wire protocol. What plugins import from here is the public surface."""

from klamm.api_set import LATER, NO_RESPONSE, ApiHandler, ApiSet, Pending, bind_handlers, handles
from klamm.clock import Clock, ManualClock, SystemClock
from klamm.config.plan import read_tables
from klamm.config.problems import ConfigError
from klamm.config.section import load_settings
from klamm.config.setting import SettingSpec, setting, specs_of
from klamm.context import (
    Address,
    ConnectionContext,
    ListenerContext,
    RequestContext,
    ServerContext,
    ServerServices,
)
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
    HandshakeError,
    Interest,
    ListenerPart,
    ProcessorAssigner,
    Refuse,
    RequestEvent,
    RequestObserver,
    RequestScheduler,
    ServerExtension,
    Throttle,
    Transport,
    TransportLayer,
)
from klamm.hookspecs import hookimpl
from klamm.metrics import Counter, MetricsRegistry
from klamm.provider import Provider, ProviderKind
from klamm.purgatory import DelayedOperation, Purgatory
from klamm.scheduler import Scheduler, Timer
from klamm.security.authorizer import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    Authorizer,
    PatternType,
    ResourceType,
)
from klamm.security.principal import ANONYMOUS, KafkaPrincipal
from klamm.shared_state import SharedState, Table, TableStore
from klamm.version import __version__
from klamm.wire.errors import ErrorCode, KafkaError

__all__ = [
    "ANONYMOUS",
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermission",
    "Address",
    "Admission",
    "ApiHandler",
    "ApiSet",
    "AuthenticationStep",
    "Authenticator",
    "AuthenticatorFactory",
    "Authorizer",
    "Buffer",
    "CLUSTER_NAME",
    "Clock",
    "ConfigError",
    "ConnectionContext",
    "ConnectionGate",
    "Counter",
    "Delay",
    "DelayedOperation",
    "END_OF_STREAM",
    "ErrorCode",
    "HandshakeError",
    "Interest",
    "KafkaError",
    "KafkaPrincipal",
    "LATER",
    "ListenerContext",
    "ListenerPart",
    "ManualClock",
    "MetricsRegistry",
    "NO_RESPONSE",
    "PatternType",
    "Pending",
    "ProcessorAssigner",
    "Provider",
    "ProviderKind",
    "Purgatory",
    "Refuse",
    "RequestContext",
    "RequestEvent",
    "RequestObserver",
    "RequestScheduler",
    "ResourceType",
    "Scheduler",
    "ServerContext",
    "ServerExtension",
    "ServerServices",
    "SettingSpec",
    "SharedState",
    "SystemClock",
    "Table",
    "TableStore",
    "Throttle",
    "Timer",
    "Transport",
    "TransportLayer",
    "WILDCARD",
    "WOULD_BLOCK",
    "__version__",
    "bind_handlers",
    "handles",
    "hookimpl",
    "load_settings",
    "read_tables",
    "setting",
    "specs_of",
]
