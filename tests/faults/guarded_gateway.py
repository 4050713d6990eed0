"""`guarded_gateway`: a gateway that decodes every request, with or without filters, in front of a broker in another
process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.contract.filter_settings import settings_of
from tests.peers.klamm_server import KlammServer
from tests.peers.server import lasting_port


@contextmanager
def guarded_gateway(directory: Path, filters: Sequence[str] = ()) -> Iterator[KlammServer]:
    """Yield the gateway. It has the audit, and an authorizer that allows everyone topics, groups and the cluster."""
    with KlammServer(directory / "broker", {"listeners.default.gates": "[]"}) as broker:
        own = settings_of(filters, directory, own={"audit": ()})
        settings = {
            **{key: value for key, _, value in (one.partition("=") for one in own)},
            "listeners.default.gates": "[]",
            "listeners.default.api_set": "gateway",
            "listeners.default.authorizer": "static",
            "listeners.default.static.rules": str(
                [f"allow User:* ALL {kind}:*" for kind in ("topic", "group", "cluster")]
            ),
            "listeners.default.observers": '["audit"]',
            "listeners.default.audit.spool": str(directory / "spool"),
            "gateway.bootstrap": f'["{broker.bootstrap}"]',
            "gateway.node_ports": str(lasting_port()),
        }
        with KlammServer(directory / "gateway", settings) as gateway:
            yield gateway
