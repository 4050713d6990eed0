"""The command `klamm nodes`: stops and starts nodes of a test server, and moves leaders, over the server's HTTP API."""

from __future__ import annotations

import argparse
import http.client
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from klamm.config import CommandParser

_EXIT_FAILED: Final = 1
_TIMEOUT_S: Final = 30.0


class _RefusedError(Exception):
    """Raised if the server refuses a request or cannot be reached. The message contains the reason."""


def run(arguments: Sequence[str]) -> int:
    """Perform one command, and print the state after it. Return the exit code."""
    options = _parser().parse_args(list(arguments))
    try:
        control, token = _endpoint(options.ready_file)
        method, path, body = _request(options)
        answer = _call(control, token, method, path, body)
    except (_RefusedError, OSError, http.client.HTTPException) as error:
        print(f"klamm nodes: {error}", file=sys.stderr)
        return _EXIT_FAILED
    for line in _lines(options, answer):
        print(line)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="klamm nodes",
        description="Nodes of a server that was started with `--ready-file FILE`, the extension `control` and"
        " `[broker] nodes`, e.g. `klamm serve --ephemeral --set nodes=3 --ready-file FILE`. Nothing is replicated.",
    )
    parser.add_argument("ready_file", metavar="FILE", type=Path, help="the ready file of the server")
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    actions.add_parser(
        "list", help="list the nodes, their addresses and the number of partitions that they lead; the default"
    )
    for name, text in (("stop", "close a node's ports and connections"), ("start", "open a node's ports again")):
        actions.add_parser(name, help=text).add_argument("node", metavar="NODE", type=int)
    leader = actions.add_parser("leader", help="make a node the leader of a partition; NODE none makes it leaderless")
    leader.add_argument("topic", metavar="TOPIC")
    leader.add_argument("partition", metavar="PARTITION", type=int)
    leader.add_argument("node", metavar="NODE", type=lambda text: None if text == "none" else int(text))
    coordinator = actions.add_parser("coordinator", help="make a node the coordinator of a group or a transactional id")
    coordinator.add_argument("key", metavar="KEY")
    coordinator.add_argument("node", metavar="NODE", type=int)
    return parser


def _endpoint(ready_file: Path) -> tuple[str, str]:
    try:
        found = json.loads(ready_file.read_text(encoding="utf-8"))
        return found["control"], found["token"]
    except OSError as error:
        raise _RefusedError(
            f"{ready_file}: {error.strerror}; a server writes it once every listener answers"
        ) from error
    except (ValueError, TypeError) as error:
        raise _RefusedError(f"{ready_file} is not a ready file") from error
    except KeyError as error:
        raise _RefusedError(f"{ready_file}: the server has no extension `control`") from error


def _request(options: argparse.Namespace) -> tuple[str, str, dict[str, Any] | None]:
    if options.action in ("stop", "start"):
        return "POST", f"/nodes/{options.node}", {"running": options.action == "start"}
    if options.action == "leader":
        body = {"partition": options.partition, "node": options.node}
        return "POST", f"/leaders/{quote(options.topic, safe='')}", body
    if options.action == "coordinator":
        return "POST", f"/coordinators/{quote(options.key, safe='')}", {"node": options.node}
    return "GET", "/nodes", None


def _call(control: str, token: str, method: str, path: str, body: dict[str, Any] | None) -> Any:
    connection = http.client.HTTPConnection(control.removeprefix("http://"), timeout=_TIMEOUT_S)
    try:
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        answer = json.loads(response.read())
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise _RefusedError(answer.get("error", response.reason))
    return answer


def _lines(options: argparse.Namespace, answer: Any) -> list[str]:
    if options.action == "leader":
        return [f"{options.topic}-{partition}  {_leader(node)}" for partition, node in answer.items()]
    if options.action == "coordinator":
        return [f"{options.key}  node {answer['node']}"]
    return [
        f"node {node['id']}  {'running' if node['running'] else 'stopped'}  leads {node['leads']}  "
        + "  ".join(f"{name} {address}" for name, address in node["listeners"].items())
        for node in answer
    ]


def _leader(node: int) -> str:
    return "no leader" if node < 0 else f"node {node}"
