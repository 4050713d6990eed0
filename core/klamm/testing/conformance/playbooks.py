"""`Playbook`: the messages of a client that authenticates, and the expected result."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from klamm.shared.principal import KafkaPrincipal

Client: TypeAlias = Callable[[], Generator[bytes, bytes, None]]
"""Yields the client's messages; each `yield` returns the server's answer, empty if there is none.

It may return, or raise, when it gives up.
"""


@dataclass(frozen=True)
class Playbook:
    """A login. `client` has its messages: a list of bytes, or a generator function that sees each answer.

    For an authenticator they are frames without their size, for a SASL mechanism tokens. `principal` is the resulting
    principal; None if the login must fail.
    """

    client: Sequence[bytes] | Client
    principal: KafkaPrincipal | None

    def start(self) -> Generator[bytes, bytes, None]:
        """The client, from its beginning."""
        return self.client() if callable(self.client) else _in_order(self.client)


def answered(client: Generator[bytes, bytes, None], answer: bytes) -> bytes | None:
    """Return the client's next message; None if there is none, or the client gives up."""
    try:
        return client.send(answer)
    except Exception:
        return None


def _in_order(sent: Sequence[bytes]) -> Generator[bytes, bytes, None]:
    # A list ignores answers; a generator gets them.
    yield from (one for one in sent)
