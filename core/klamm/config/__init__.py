"""Reads a TOML file into checked settings and the plan of a server, and reports problems with file, line and key.

The names listed here are public: a plugin uses them to describe, check and read its settings.
"""

from klamm.api.api_set import Finding
from klamm.api.described_config import DescribedConfig
from klamm.config.arguments import CommandParser
from klamm.config.checks import (
    check_host_port,
    check_networks,
    check_private,
    format_host_port,
    host_to_connect,
    parse_host_port,
)
from klamm.config.problems import did_you_mean
from klamm.config.security_warnings import ListenerSecurity
from klamm.config.setting import CLUSTER_WIDE, PER_BROKER, SettingSpec, check_value, specs_of
from klamm.config.table_loader import check_table, load_settings
from klamm.config.tables import read_tables
from klamm.shared.version import PLUGIN_API

__all__ = [
    "CLUSTER_WIDE",
    "PER_BROKER",
    "PLUGIN_API",
    "CommandParser",
    "ListenerSecurity",
    "DescribedConfig",
    "Finding",
    "SettingSpec",
    "check_host_port",
    "check_networks",
    "check_private",
    "check_table",
    "check_value",
    "did_you_mean",
    "format_host_port",
    "host_to_connect",
    "load_settings",
    "parse_host_port",
    "read_tables",
    "specs_of",
]
