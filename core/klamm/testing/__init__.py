"""For tests of klamm, of plugins, and of programs that talk to Kafka: a server inside the process, and raw clients."""

from klamm.runtime.clock import ManualClock
from klamm.testing.admin import HELPER_CLIENT_ID, Admin, ConsumedRecord
from klamm.testing.clock import MovingClock
from klamm.testing.cluster_admin import ClusterAdmin
from klamm.testing.embedded import EmbeddedServer
from klamm.testing.raw_client import RawClient
from klamm.testing.secure import SecureServer

__all__ = [
    "HELPER_CLIENT_ID",
    "Admin",
    "ClusterAdmin",
    "ConsumedRecord",
    "EmbeddedServer",
    "ManualClock",
    "MovingClock",
    "RawClient",
    "SecureServer",
]
