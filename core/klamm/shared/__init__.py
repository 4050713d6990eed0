"""Tables and values that several parts of one server read. The names listed here are public."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klamm.shared.addresses import IPV6_SOURCE_PREFIX_LENGTH, IpAddress, IpNetworks, ip_address_of, source_of
    from klamm.shared.client_quotas import CLIENT_QUOTAS, QuotaEntity, client_quota_key, quotas_by_entity
    from klamm.shared.features import Feature, FeatureLevels, Features
    from klamm.shared.java_regex import JavaRegexError, compile_java, java_replacement
    from klamm.shared.re2_patterns import compile_re2
    from klamm.shared.tables import Row, SharedState, Table, TableStore
    from klamm.shared.worker_share import WorkerShare

__all__ = [
    "CLIENT_QUOTAS",
    "Feature",
    "FeatureLevels",
    "Features",
    "IPV6_SOURCE_PREFIX_LENGTH",
    "IpAddress",
    "IpNetworks",
    "JavaRegexError",
    "QuotaEntity",
    "Row",
    "SharedState",
    "Table",
    "TableStore",
    "WorkerShare",
    "client_quota_key",
    "compile_java",
    "compile_re2",
    "ip_address_of",
    "java_replacement",
    "quotas_by_entity",
    "source_of",
]

if not TYPE_CHECKING:
    # Loaded at the first use: most servers use a few of these modules.
    _MODULES = ("client_quotas", "java_regex", "re2_patterns", "tables", "features", "addresses", "worker_share")

    def __getattr__(name):
        if name in __all__:
            from importlib import import_module

            for module in _MODULES:
                found = vars(import_module(f"{__name__}.{module}"))
                if name in found:
                    return found[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
