"""klamm: a server framework for the Kafka wire protocol. What plugins import from here is the public surface."""

from klamm.announcements import Announcement
from klamm.api_set import LATER, NO_RESPONSE, ApiHandler, ApiSet, Pending, bind_handlers, handles
from klamm.client_quotas import CLIENT_QUOTAS, QuotaEntity, client_quota_key, client_quotas
from klamm.clock import Clock, ManualClock, SystemClock
from klamm.config.checks import check_networks
from klamm.config.plan import read_tables
from klamm.config.problems import ConfigError
from klamm.config.section import load_settings
from klamm.config.setting import SettingSpec, setting, specs_of
from klamm.config.told import ToldConfig
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
    ConnectionLoad,
    Delay,
    HandshakeError,
    Interest,
    ListenerPart,
    Move,
    ProcessorAssigner,
    ProcessorLoad,
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
from klamm.java_regex import JavaRegexError, compile_java, java_replacement
from klamm.metrics import Counter, Family, Histogram, HistogramValue, MetricsRegistry, Sample
from klamm.network.limited_log import LimitedLog
from klamm.one_line import in_one_line
from klamm.provider import Provider, ProviderKind
from klamm.purgatory import DelayedOperation, Purgatory
from klamm.rates import Rate, TokenBucket
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
from klamm.security.delegation_tokens import DELEGATION_TOKENS, DelegationToken, DelegationTokenCache
from klamm.security.principal import ANONYMOUS, KafkaPrincipal
from klamm.security.sasl import (
    CredentialStore,
    SaslAuthenticationError,
    SaslChallenge,
    SaslContext,
    SaslError,
    SaslEvaluation,
    SaslMechanism,
    SaslServer,
    SaslSuccess,
    SaslTask,
)
from klamm.security.scram import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_CREDENTIALS,
    ScramCredential,
    ScramMechanism,
)
from klamm.shared_state import Row, SharedState, Table, TableStore
from klamm.version import __version__
from klamm.wire.errors import ErrorCode, KafkaError
from klamm.workers import Workers

__all__ = [
    "ANONYMOUS",
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermission",
    "Address",
    "Admission",
    "Announcement",
    "ApiHandler",
    "ApiSet",
    "AuthenticationStep",
    "Authenticator",
    "AuthenticatorFactory",
    "Authorizer",
    "Buffer",
    "CLIENT_QUOTAS",
    "CLUSTER_NAME",
    "Clock",
    "ConfigError",
    "ConnectionContext",
    "ConnectionGate",
    "ConnectionLoad",
    "Counter",
    "CredentialStore",
    "DELEGATION_TOKENS",
    "Delay",
    "DelayedOperation",
    "DelegationToken",
    "DelegationTokenCache",
    "END_OF_STREAM",
    "ErrorCode",
    "Family",
    "HandshakeError",
    "Histogram",
    "HistogramValue",
    "Interest",
    "JavaRegexError",
    "KafkaError",
    "KafkaPrincipal",
    "LATER",
    "LimitedLog",
    "ListenerContext",
    "ListenerPart",
    "MAX_ITERATIONS",
    "MIN_ITERATIONS",
    "ManualClock",
    "MetricsRegistry",
    "Move",
    "NO_RESPONSE",
    "PatternType",
    "Pending",
    "ProcessorAssigner",
    "ProcessorLoad",
    "Provider",
    "ProviderKind",
    "Purgatory",
    "QuotaEntity",
    "Rate",
    "Refuse",
    "RequestContext",
    "RequestEvent",
    "RequestObserver",
    "RequestScheduler",
    "ResourceType",
    "Row",
    "SCRAM_CREDENTIALS",
    "Sample",
    "SaslAuthenticationError",
    "SaslChallenge",
    "SaslContext",
    "SaslError",
    "SaslEvaluation",
    "SaslMechanism",
    "SaslServer",
    "SaslSuccess",
    "SaslTask",
    "Scheduler",
    "ScramCredential",
    "ScramMechanism",
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
    "TokenBucket",
    "ToldConfig",
    "Transport",
    "TransportLayer",
    "WILDCARD",
    "Workers",
    "WOULD_BLOCK",
    "__version__",
    "bind_handlers",
    "check_networks",
    "client_quota_key",
    "client_quotas",
    "compile_java",
    "handles",
    "hookimpl",
    "in_one_line",
    "java_replacement",
    "load_settings",
    "read_tables",
    "setting",
    "specs_of",
]
