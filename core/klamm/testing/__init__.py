"""Helpers for tests of klamm, of plugins, and of programs that use Kafka.

They are a server inside the process, raw clients, and the conformance suites of parts."""

from klamm.runtime.clock import ManualClock
from klamm.testing.acls import Acls
from klamm.testing.admin import HELPER_CLIENT_ID, Admin, ConsumedRecord, Isolation
from klamm.testing.certificates import CertificateFiles
from klamm.testing.client_settings import settings_for
from klamm.testing.clock import MovingClock
from klamm.testing.cluster_admin import ClusterAdmin
from klamm.testing.conformance import (
    Decision,
    Playbook,
    check_api_set,
    check_assigner,
    check_authenticator,
    check_authorizer,
    check_credential_store,
    check_extension,
    check_filter,
    check_gate,
    check_observer,
    check_sasl_mechanism,
    check_scheduler,
    check_throttle,
    check_transport,
)
from klamm.testing.conformance.silent_transport import SilentTransport
from klamm.testing.embedded import EmbeddedServer
from klamm.testing.groups import Group, GroupMember
from klamm.testing.memory import MemoryChannel, MemoryListener
from klamm.testing.raw_client import RawClient
from klamm.testing.secure import SecureServer, Users
from klamm.testing.service_admin import admin_of
from klamm.testing.shrinking import shrink
from klamm.testing.simulated import SimulatedClient, SimulatedServer
from klamm.testing.timelines import read_timeline

__all__ = [
    "HELPER_CLIENT_ID",
    "Acls",
    "Admin",
    "ClusterAdmin",
    "CertificateFiles",
    "ConsumedRecord",
    "Decision",
    "EmbeddedServer",
    "Group",
    "GroupMember",
    "Isolation",
    "ManualClock",
    "MemoryChannel",
    "MemoryListener",
    "MovingClock",
    "Playbook",
    "RawClient",
    "SecureServer",
    "SilentTransport",
    "SimulatedClient",
    "SimulatedServer",
    "Users",
    "admin_of",
    "check_api_set",
    "check_assigner",
    "check_authenticator",
    "check_authorizer",
    "check_credential_store",
    "check_extension",
    "check_filter",
    "check_gate",
    "check_observer",
    "check_sasl_mechanism",
    "check_scheduler",
    "check_throttle",
    "check_transport",
    "read_timeline",
    "settings_for",
    "shrink",
]
