"""A server that is killed while it creates topics.

`python -m tests.peers.interrupted_changes SPOOL DATA_DIR stuck|quick` is the server. It prints its port, and the line
`stuck` when the creation of the topic `stuck` is about to be executed: the intent is on the disk, and the handler runs
only if the process lives on. Outcomes are not written for an hour, so the outcomes of answered requests are lost with
the process. A server that is started with `quick` does neither.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from klamm import Provider, RequestObserver, hookimpl
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages import create_topics, metadata
from klamm_spark.spool.signatures import write_key
from tests.peers.klamm_server import ROOT

_STUCK = "stuck"
DONE = "done"


class Stuck(RequestObserver):
    """An observer after the audit. The requests that it holds back have their intents on the disk."""

    @property
    def announced_api_keys(self) -> frozenset[int]:
        return frozenset({19})

    def starting(self, message: Any, context: Any) -> None:
        if any(topic.name == _STUCK for topic in message.topics):
            print(_STUCK, flush=True)
            threading.Event().wait()


class Parts:
    @hookimpl
    def klamm_request_observers(self) -> Any:
        yield Provider(_STUCK, f"{__name__}:Stuck")


def main(spool: str, data_dir: str, mode: str) -> None:
    stuck = mode == _STUCK
    settings = [
        "listeners.default.api_set=broker",
        f"listeners.default.audit.spool={spool}",
        "listeners.default.audit.node=node-1",
        f"listeners.default.audit.signing_key={Path(spool).with_name('key')}",
        f"listeners.default.audit.flush_interval_ms={3_600_000 if stuck else 10}",
        f"listeners.default.observers={['audit', _STUCK] if stuck else ['audit']}",
    ]
    with EmbeddedServer(settings, plugins=[Parts()], data_dir=data_dir) as server:
        print(server.address()[1], flush=True)
        sys.stdin.read()


def _child(folder: Path, mode: str) -> tuple[subprocess.Popen[str], int]:
    roots = [entry for entry in sys.path if entry.startswith(str(ROOT)) and "site-packages" not in entry]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.peers.interrupted_changes", str(folder / "spool"), str(folder / "data"), mode],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(roots)},
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def _creation(name: str) -> create_topics.CreateTopicsRequest:
    return create_topics.CreateTopicsRequest([create_topics.CreatableTopic(name, 1, 1)])


def leave_interrupted(folder: Path) -> set[str]:
    """Kill a server after it has created the topic `done` and before it creates `stuck`; then start and stop another.

    Return the topics that exist afterwards. The spool is `folder / "spool"`, signed with `folder / "key"`.
    """
    write_key(folder / "key")
    process, port = _child(folder, _STUCK)
    with RawClient(("127.0.0.1", port), client_id="eve") as client:
        assert client.call(_creation(DONE), 5).topics[0].error_code == 0
        client.send(_creation(_STUCK), 5)
        assert process.stdout is not None
        assert process.stdout.readline() == f"{_STUCK}\n"
        process.kill()
        process.communicate(timeout=60)
    process, port = _child(folder, "quick")
    with RawClient(("127.0.0.1", port)) as client:
        topics = {topic.name for topic in client.call(metadata.MetadataRequest(topics=None), 12).topics}
    process.communicate(timeout=60)
    return topics


if __name__ == "__main__":
    main(*sys.argv[1:])
