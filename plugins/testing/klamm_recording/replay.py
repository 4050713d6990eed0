"""The command `klamm replay`: sends recorded requests to another server, and reports answers with another error
code.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from klamm.config import parse_host_port
from klamm.testing import RawClient
from klamm.wire.api_keys import ApiKey, find_spec, load
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.struct_base import WireStruct
from klamm_recording.recording import FORMAT

_KEYS: Final = {spec.name: int(key) for key in ApiKey if (spec := find_spec(key)) is not None}
_METADATA_WITH_IDS: Final = 12
_USAGE: Final = 2


class ReplayError(Exception):
    """Raised for an error in the arguments or the file."""


def main(arguments: list[str]) -> int:
    """Run the command. Return 0 if every answer has the recorded error code, 1 if some differ, 2 if it fails."""
    parser = argparse.ArgumentParser(prog="klamm replay", description=__doc__)
    parser.add_argument("file", metavar="FILE", type=Path, help="file of a saved recording")
    parser.add_argument("--to", metavar="HOST:PORT", required=True, help="a listener without authentication")
    options = parser.parse_args(arguments)
    try:
        address = _address(options.to)
        head, requests = _read(options.file)
        differences = _replay(requests, head["topics"], address)
    except (OSError, ReplayError) as error:
        print(f"klamm replay: {error}", file=sys.stderr)
        return _USAGE
    for line in differences:
        print(line)
    print(f"{len(requests)} requests, {len(differences)} of them with a different answer")
    return 1 if differences else 0


def _address(text: str) -> tuple[str, int]:
    try:
        return parse_host_port(text, to_connect=True)
    except ValueError as error:
        raise ReplayError(f"--to {error}") from error


def _read(file: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    try:
        head, *requests = map(json.loads, file.read_text(encoding="utf-8").splitlines())
        known = head["klamm_recording"] == FORMAT
    except OSError as error:
        raise ReplayError(f"{file}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ReplayError(f"{file} is not a recording") from error
    if not known:
        raise ReplayError(f"{file} is a recording of format {head['klamm_recording']}, not {FORMAT}")
    return head, [one for one in requests if one["raw"] and one["api"] in _KEYS]


def _replay(requests: list[dict[str, Any]], names: dict[str, str], address: tuple[str, int]) -> list[str]:
    clients: dict[str, RawClient] = {}
    differences = []
    try:
        for number, one in enumerate(requests, 1):
            connection = one["connection_id"]
            if connection not in clients:
                clients[connection] = RawClient(address, client_id=one["client_id"])
            wanted = one["error_code"] if one["outcome"] == "answered" else None
            found = _send(clients[connection], one, names)
            if found is None and wanted is not None:
                clients.pop(connection).close()
            if found != wanted and one["outcome"] in ("answered", "no_answer"):
                differences.append(f"{number} {one['api']} v{one['version']}: {_code(wanted)}, now {_code(found)}")
    finally:
        for client in clients.values():
            client.close()
    return differences


def _code(code: int | None) -> str:
    return "no answer" if code is None else f"error {code}" if code else "no error"


def _send(client: RawClient, recorded: dict[str, Any], names: dict[str, str]) -> int | None:
    """Send a recorded request. Return the first error code of the answer; None if there is no answer."""
    module = load(_KEYS[recorded["api"]])
    request_class = vars(module)[f"{module.NAME}Request"]
    version = recorded["version"]
    request = request_class.decode(version, base64.b64decode(recorded["raw"]), 0)
    structs = list(_structs(request))
    old = {one.topic_id.hex() for one in structs if hasattr(one, "topic_id")} & names.keys()
    if old:
        ids = {topic.name: topic.topic_id for topic in client.call(MetadataRequest(None), _METADATA_WITH_IDS).topics}
        for one in structs:
            name = names.get(one.topic_id.hex()) if hasattr(one, "topic_id") else None
            if name in ids:
                one.topic_id = ids[name]
    correlation_id = client.send(request, version)
    if recorded["outcome"] == "no_answer":
        return None
    try:
        response = client.receive(module.API_KEY, version, correlation_id)
    except ConnectionError:
        return None
    return next((one.error_code for one in _structs(response) if getattr(one, "error_code", 0)), 0)


def _structs(message: Any) -> Iterator[Any]:
    if isinstance(message, WireStruct):
        yield message
        for name in message.__slots__:
            yield from _structs(getattr(message, name))
    elif isinstance(message, list):
        for one in message:
            yield from _structs(one)
