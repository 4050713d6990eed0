"""`SslSettings`: the settings of the transport `ssl`, with the check of the files that they name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from klamm.config import ListenerSecurity, check_private
from klamm_ssl.options import SslOptions


@dataclass(frozen=True, slots=True)
class SslSettings(SslOptions):
    """`[listeners.NAME.ssl]`."""

    def warnings(self, listener: ListenerSecurity) -> Iterator[tuple[str, str]]:
        """Yield a warning if other users can read a file that has the certificate and the private key."""
        if self.certificate is not None and self.private_key is None and self.private_key_pem is None:
            exposed = check_private(self.certificate)
            if exposed is not None:
                yield "certificate", exposed

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield problems with the files, and settings that contradict each other."""
        # Imported here, because settings alone do not need OpenSSL.
        from klamm_ssl.contexts import problems_of

        return problems_of(self, os.environ)
