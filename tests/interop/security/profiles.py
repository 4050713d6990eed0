"""Security profiles of clients, and the possible outcomes of a login."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path

GIVE_UP_S = 9.0
"""Seconds for which a client tries if it will get no answer."""
PATIENCE_S = 100.0
"""Seconds for which a client waits if it will get an answer, also on a busy machine."""


class Outcome(enum.Enum):
    """The outcome for a client. `REFUSED`: it got an authentication error. `NOTHING`: it never got a response."""

    WORKS = "works"
    REFUSED = "refused"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Profile:
    """A client's security settings, in Kafka's terms. Files are PEM; `token` is a JWT for OAUTHBEARER."""

    security_protocol: str = "PLAINTEXT"
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    mechanism: str | None = None
    username: str = ""
    password: str = ""
    token: str = ""
    give_up_s: float = GIVE_UP_S

    @property
    def tls(self) -> bool:
        """True if bytes are encrypted."""
        return self.security_protocol.endswith("SSL")
