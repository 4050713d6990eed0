"""klamm: a server framework for the Kafka wire protocol. What plugins import from here is the public surface."""

from klamm.api.api_set import LATER, NO_RESPONSE, ApiHandler, ApiSet, Pending, bind_handlers, handles
from klamm.api.authentication import AuthenticationStep, Authenticator, AuthenticatorFactory
from klamm.api.authorizer import (
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
from klamm.api.context import (
    Address,
    ConnectionContext,
    ListenerContext,
    RequestContext,
    ServerContext,
    ServerServices,
)
from klamm.api.dispatch import ConnectionLoad, Move, ProcessorAssigner, ProcessorLoad, RequestScheduler
from klamm.api.extension import ServerExtension
from klamm.api.gates import Admission, ConnectionGate, Delay, Refuse
from klamm.api.hookspecs import hookimpl
from klamm.api.observer import RequestEvent, RequestObserver
from klamm.api.part import ListenerPart
from klamm.api.principal import ANONYMOUS, KafkaPrincipal
from klamm.api.provider import Provider, ProviderKind
from klamm.api.sasl import (
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
from klamm.api.throttles import Throttle
from klamm.api.transport import END_OF_STREAM, WOULD_BLOCK, Buffer, HandshakeError, Interest, Transport, TransportLayer
from klamm.config.checks import check_networks
from klamm.config.described_config import DescribedConfig
from klamm.config.plan import read_tables
from klamm.config.problems import ConfigError
from klamm.config.setting import SettingSpec, setting, specs_of
from klamm.config.table_loader import check_table, load_settings
from klamm.logs.escaping import in_one_line
from klamm.logs.rate_limited import RateLimitedLog
from klamm.metrics.registry import Counter, Family, Histogram, HistogramValue, MetricsRegistry, Sample
from klamm.runtime.clock import Clock, ManualClock, SystemClock
from klamm.runtime.purgatory import DelayedOperation, Purgatory
from klamm.runtime.rates import Rate, TokenBucket
from klamm.runtime.scheduler import Scheduler, Timer
from klamm.runtime.workers import Workers
from klamm.shared.admin_events import AdminEvent
from klamm.shared.client_quotas import CLIENT_QUOTAS, QuotaEntity, client_quota_key, client_quotas
from klamm.shared.delegation_tokens import DELEGATION_TOKENS, DelegationToken, DelegationTokenCache
from klamm.shared.java_regex import JavaRegexError, compile_java, java_replacement
from klamm.shared.scram import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_CREDENTIALS,
    ScramCredential,
    ScramMechanism,
)
from klamm.shared.tables import Row, SharedState, Table, TableStore
from klamm.shared.version import __version__
from klamm.wire.errors import ErrorCode, KafkaError

__all__ = [
    "ANONYMOUS",
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermission",
    "Address",
    "Admission",
    "AdminEvent",
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
    "RateLimitedLog",
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
    "DescribedConfig",
    "Transport",
    "TransportLayer",
    "WILDCARD",
    "Workers",
    "WOULD_BLOCK",
    "__version__",
    "bind_handlers",
    "check_networks",
    "check_table",
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
