"""A gateway that looks at every request, with filters or without, before a broker, each a process of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.contract.filter_settings import settings_of
from tests.peers.klamm_server import KlammServer
from tests.peers.server import lasting_port


@contextmanager
def guarded_gateway(directory: Path, filters: Sequence[str] = ()) -> Iterator[KlammServer]:
    """With an authorizer that allows topics, groups and the cluster to all, and the audit."""
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
