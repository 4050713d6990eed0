"""Functions that list and change the SCRAM credentials of users, as the logged-in user, over Kafka's protocol.

Each raises KafkaError if the server refuses, and ValueError for a wrong argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from klamm.sasl import ScramMechanism
from klamm.testing import Admin
from klamm.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from klamm.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from klamm_console.arguments import text
from klamm_console.cluster import SHOWN_ROWS, check
from klamm_console.routes import Action, Argument

_MECHANISMS: Final = ", ".join(each.mechanism_name for each in ScramMechanism)
_ITERATIONS: Final = 8192
_SALT_BYTES: Final = 16
_VERSION: Final = 0


def users(admin: Admin) -> list[dict[str, Any]]:
    """Return the users that have SCRAM credentials, with a row for each mechanism."""
    answer = admin.call(DescribeUserScramCredentialsRequest(None), _VERSION)
    check(answer.error_code, answer.error_message)
    rows = [
        {"user": each.user, "mechanism": mechanism.mechanism_name, "iterations": one.iterations}
        for each in answer.results
        for one in each.credential_infos
        if (mechanism := ScramMechanism.of_type(one.mechanism)) is not None
    ]
    return sorted(rows, key=lambda row: (row["user"], row["mechanism"]))[:SHOWN_ROWS]


def actions(random_bytes: Callable[[int], bytes]) -> Iterator[Action]:
    """Yield the actions. `random_bytes` makes salts."""

    def set_password(admin: Admin, body: Mapping[str, Any]) -> None:
        """Create a user's credential, or change its password."""
        mechanism, password = ScramMechanism.named(text(body, "mechanism")), text(body, "password")
        if not password:
            raise ValueError("a password must not be empty")
        # As in Kafka, the client salts: the listener never gets the password.
        salt = random_bytes(_SALT_BYTES)
        salted = mechanism.salted_password(password.encode(), salt, _ITERATIONS)
        change = ScramCredentialUpsertion(text(body, "user"), mechanism.type_code, _ITERATIONS, salt, salted)
        _alter(admin, AlterUserScramCredentialsRequest(upsertions=[change]))

    user = Argument("user", "The user's name, without `User:`.")
    mechanism = Argument("mechanism", f"One of {_MECHANISMS}.")
    yield (
        "set_password",
        "Create a user with a SCRAM credential, or change the password of one.",
        set_password,
        (user, mechanism, Argument("password", "The password.")),
    )
    yield "delete_credential", "Delete a user's SCRAM credential.", delete_credential, (user, mechanism)


def delete_credential(admin: Admin, body: Mapping[str, Any]) -> None:
    """Delete a user's credential for one mechanism."""
    mechanism = ScramMechanism.named(text(body, "mechanism"))
    deletion = ScramCredentialDeletion(text(body, "user"), mechanism.type_code)
    _alter(admin, AlterUserScramCredentialsRequest(deletions=[deletion]))


def _alter(admin: Admin, request: AlterUserScramCredentialsRequest) -> None:
    (answer,) = admin.call(request, _VERSION).results
    check(answer.error_code, answer.error_message)
