"""The authorizer `opa`: sends one POST to Open Policy Agent's data API for each principal, host and resource."""

from __future__ import annotations

import json
import ssl
from collections import deque
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import quote, urlsplit

from klamm import KafkaPrincipal, ListenerContext, setting
from klamm.acl import AclOperation, LaterAuthorizer, LaterSettings, ResourceType

_ANSWER_MAX_BYTES = 65_536


def _check_url(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_right = False
    if not is_right or "@" in parts.netloc or parts.query or parts.fragment:
        return f'must be http://HOST:PORT or https://HOST:PORT, not "{url}"'
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpaSettings(LaterSettings):
    """The table `[opa]` or `[listeners.NAME.opa]`."""

    url: str = setting(doc="The server, e.g. `https://127.0.0.1:8181`.", check=_check_url)
    path: str = setting("kafka/operations", doc="The rule that lists the allowed operations: its package and name.")
    ca_file: str = setting("", doc="Certificates that a server with https must have one of. Empty: the system's.")


class OpaAuthorizer(LaterAuthorizer):
    """Allows the operations that a rule lists. Without a list, e.g. because the rule is missing, it allows nothing."""

    settings: OpaSettings

    def open(self, listener: ListenerContext) -> None:
        """Read the certificates. Raises OSError if there are none."""
        parts = urlsplit(self.settings.url)
        self._host, self._port = parts.hostname or "", parts.port
        self._target = f"{parts.path.rstrip('/')}/v1/data/{quote(self.settings.path.strip('/'))}"
        is_https = parts.scheme == "https"
        self._tls = ssl.create_default_context(cafile=self.settings.ca_file or None) if is_https else None
        # Each thread takes a connection while it asks, so there are at most as many as threads. The deque's methods are
        # atomic.
        self._idle: deque[HTTPConnection] = deque()
        super().open(listener)

    def permitted(
        self, principal: KafkaPrincipal, host: str, resource_type: ResourceType, resource_name: str
    ) -> list[AclOperation]:
        """Ask the server, on a thread of `LaterAuthorizer`. Raises OSError, HTTPException or ValueError without a valid
        answer.
        """
        subject = {"principal": str(principal), "host": host}
        resource = {"resource_type": resource_type.name, "resource_name": resource_name}
        answer = self._answer(json.dumps({"input": subject | resource}).encode())
        names = answer.get("result", []) if isinstance(answer, dict) else None
        if not isinstance(names, list) or not all(name in AclOperation.__members__ for name in names):
            raise ValueError(f"{self._target}: not a list of operations")
        return list(AclOperation) if "ALL" in names else [AclOperation[name] for name in names]

    def close(self) -> None:
        """End the threads, then close the idle connections."""
        super().close()
        while self._idle:
            self._idle.pop().close()

    def _answer(self, body: bytes) -> object:
        if self._idle:
            try:
                return self._post(self._idle.pop(), body)
            except (ConnectionError, IndexError):
                # The server has closed a connection that was idle, or another thread took the last one.
                pass
        timeout_s = self.settings.timeout_ms / 1000
        if self._tls is None:
            return self._post(HTTPConnection(self._host, self._port, timeout=timeout_s), body)
        return self._post(HTTPSConnection(self._host, self._port, timeout=timeout_s, context=self._tls), body)

    def _post(self, connection: HTTPConnection, body: bytes) -> object:
        is_reusable = False
        try:
            connection.request("POST", self._target, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            content = response.read(_ANSWER_MAX_BYTES)
            is_reusable = response.isclosed() or not response.read(1)
            if response.status != 200 or not is_reusable:
                raise ValueError(f"{self._target}: status {response.status}, {len(content)} bytes")
            answer: object = json.loads(content)
            return answer
        finally:
            if is_reusable:
                self._idle.append(connection)
            else:
                connection.close()
