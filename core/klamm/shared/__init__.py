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
    # A module is loaded when one of its names is first used, because most servers use only a few of them.
    _NAMES = {
        "addresses": ("IPV6_SOURCE_PREFIX_LENGTH", "IpAddress", "IpNetworks", "ip_address_of", "source_of"),
        "client_quotas": ("CLIENT_QUOTAS", "QuotaEntity", "client_quota_key", "quotas_by_entity"),
        "features": ("Feature", "FeatureLevels", "Features"),
        "java_regex": ("JavaRegexError", "compile_java", "java_replacement"),
        "re2_patterns": ("compile_re2",),
        "tables": ("Row", "SharedState", "Table", "TableStore"),
        "worker_share": ("WorkerShare",),
    }
    _MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

    def __getattr__(name):
        module = _MODULE_OF.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{module}"), name)
