"""AlterUserScramCredentials, version 0 (KIP-554): set or delete SCRAM credentials of users.

The client sends salted passwords; the shared table `scram_credentials` stores the keys that are derived from them.
Changes apply at once. Follows `ScramControlManager.alterCredentials`.

- A user that is named twice, even with different mechanisms: DUPLICATE_RESOURCE, unless the first entry was refused.
- An empty name or password, fewer than 4096 or more than 16384 iterations: UNACCEPTABLE_CREDENTIAL.
- Another mechanism: UNSUPPORTED_SASL_MECHANISM. Deleting a credential that does not exist: RESOURCE_NOT_FOUND.

Results come in the order in which the request names the users; Kafka returns them in the order of a hash table.

Authorization: ALTER on the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.acl import AclOperation
from klamm.sasl import MAX_ITERATIONS, MIN_ITERATIONS, ScramCredential, ScramMechanism
from klamm.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from klamm_broker.security.authorization import require_cluster
from klamm_broker.services import BrokerServices

_Rows = Mapping[str, Mapping[str, Any]]
_Change = ScramCredentialDeletion | ScramCredentialUpsertion


def alter_scram_users(
    broker: BrokerServices, request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    """Write and delete credentials. Raises KafkaError. Runs on a request handler's thread."""
    require_cluster(context, AclOperation.ALTER)
    changed: list[_Change] = [*request.deletions, *request.upsertions]
    changed_rows: list[tuple[str, Mapping[str, Any] | None, Mapping[str, Any] | None]] = []
    results = {each.name: AlterUserScramCredentialsResult(each.name, error_message=None) for each in changed}

    def change(rows: _Rows) -> dict[str, Mapping[str, Any] | None]:
        changes: dict[str, tuple[str, Mapping[str, Any] | None]] = {}
        for each in changed:
            result = results[each.name]
            if result.error_code != ErrorCode.NONE:
                continue
            try:
                if changes.pop(each.name, None) is not None:
                    raise KafkaError(
                        ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
                    )
                mechanism = _mechanism(each)
                key = mechanism.row_key(each.name)
                if isinstance(each, ScramCredentialUpsertion):
                    changes[each.name] = key, _upserted(mechanism, each)
                else:
                    _require_there(rows, key)
                    changes[each.name] = key, None
            except KafkaError as error:
                result.error_code, result.error_message = error.error_code, error.message
        changed_rows.extend((key, rows.get(key), row) for key, row in changes.values())
        return dict(changes.values())

    broker.scram_credentials.modify(change)
    for key, before, after in changed_rows:
        context.note_change("SCRAM_CREDENTIAL", key, "iterations", _iterations(before), _iterations(after))
    return AlterUserScramCredentialsResponse(results=list(results.values()))


def _iterations(row: Mapping[str, Any] | None) -> str | None:
    return None if row is None else str(row["iterations"])


def _mechanism(each: _Change) -> ScramMechanism:
    if not each.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = ScramMechanism.of_type(each.mechanism)
    if mechanism is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return mechanism


def _require_there(rows: _Rows, key: str) -> None:
    if key not in rows:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")


def _upserted(mechanism: ScramMechanism, each: ScramCredentialUpsertion) -> Mapping[str, Any]:
    if each.iterations < MIN_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if each.iterations > MAX_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not each.salted_password:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salted password must not be empty")
    credential = ScramCredential.from_salted_password(mechanism, each.salted_password, each.salt, each.iterations)
    return credential.to_row()
