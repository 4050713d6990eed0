"""`Playbook`: the messages of a client in a login, and the expected result."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from klamm.shared.principal import KafkaPrincipal

Client: TypeAlias = Callable[[], Generator[bytes, bytes, None]]
"""A function that returns a generator of the client's messages. Each `yield` returns the server's answer; it is
empty if there is none.

If the client gives up, the generator returns or raises.
"""


@dataclass(frozen=True)
class Playbook:
    """A login. `client` has the client's messages: a list of bytes, or a generator function that gets each answer.

    For an authenticator, the messages are frames without their size fields; for a SASL mechanism, tokens. `principal`
    is the resulting principal, or None if the login must fail.
    """

    client: Sequence[bytes] | Client
    principal: KafkaPrincipal | None

    def start(self) -> Generator[bytes, bytes, None]:
        """Return a generator of the client's messages, from the first on."""
        return self.client() if callable(self.client) else _in_order(self.client)


def answered(client: Generator[bytes, bytes, None], answer: bytes) -> bytes | None:
    """Pass an answer to the client and return its next message; None if there is none, or if the client gives up."""
    try:
        return client.send(answer)
    except Exception:
        return None


def _in_order(sent: Sequence[bytes]) -> Generator[bytes, bytes, None]:
    # A client that is a list of messages ignores the answers. An iterator of a list has no `send`.
    yield from (one for one in sent)
