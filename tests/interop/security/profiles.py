"""How a client is set up to come in, and what may come of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path

GIVE_UP_S = 9.0
"""How long a client goes on trying that will get no answer."""
PATIENCE_S = 100.0
"""How long one waits that will get an answer, on a machine that is busy."""


class Outcome(enum.Enum):
    """What a client saw. `REFUSED`: it got an authentication error; `NOTHING`: it never got a response."""

    WORKS = "works"
    REFUSED = "refused"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Profile:
    """A client's security settings, by Kafka's words. Files are PEM; `token` is a JWT for OAUTHBEARER."""

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
        """Whether bytes are encrypted."""
        return self.security_protocol.endswith("SSL")
