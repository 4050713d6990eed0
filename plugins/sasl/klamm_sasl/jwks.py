"""`JwksKeys`: the keys that sign tokens, from a JWK set in a file or at a URL. Its own thread fetches them."""

from __future__ import annotations

import logging
import ssl
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from joserfc.jwk import Key

from klamm.metrics import Counter
from klamm.runtime import Clock
from klamm_sasl.jwk_set import JwksError, parse_jwks
from klamm_sasl.sasl_settings import OAuthBearerSettings, check_url

log = logging.getLogger("klamm.sasl")

_MAX_BYTES: Final = 1024 * 1024
_FILE_REFRESH_MS: Final = 2000
_LOGGED_CHARACTERS: Final = 200


class _Redirects(urllib.request.HTTPRedirectHandler):
    """A handler of redirects. It refuses a redirect to a URL where the keys would be less protected in transit."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme != req.type or check_url(newurl) is not None:
            raise JwksError(f"redirect to another URL, which is not trusted: {newurl[:_LOGGED_CHARACTERS]!r}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def fetcher(settings: OAuthBearerSettings) -> Callable[[], bytes]:
    """Return a function that fetches the JWK set of the settings. The function raises OSError or JwksError."""
    if settings.jwks_file is not None:
        return settings.jwks_file.read_bytes
    url = settings.jwks_endpoint_url
    assert url is not None
    if url.startswith("file://"):
        return Path(urllib.request.url2pathname(url.removeprefix("file://"))).read_bytes
    context = ssl.create_default_context(cafile=settings.jwks_ca_file) if url.startswith("https") else None
    handlers: list[urllib.request.BaseHandler] = [_Redirects()]
    if context is not None:
        handlers.append(urllib.request.HTTPSHandler(context=context))
    opener = urllib.request.build_opener(*handlers)
    timeout_s = settings.jwks_timeout_ms / 1000

    def fetch() -> bytes:
        request = urllib.request.Request(url, headers={"Accept": "application/json"})
        with opener.open(request, timeout=timeout_s) as response:
            data: bytes = response.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise JwksError(f"is larger than {_MAX_BYTES} bytes")
        return data

    return fetch


class JwksKeys:
    """The present keys, and the thread that fetches them. Follows Kafka's `RefreshingHttpsJwks`.

    `keys` is replaced as a whole; `thumbprints` belong to the keys in it. When new keys have arrived, the thread calls
    `changed`. After a failed fetch, the keys stay. The failure is logged and counted in `failures`, and the thread
    tries again after a growing pause.
    """

    def __init__(
        self, settings: OAuthBearerSettings, fetch: Callable[[], bytes], clock: Clock, failures: Counter, name: str
    ) -> None:
        self._settings = settings
        self._fetch = fetch
        self._clock = clock
        self._failures = failures
        local = settings.jwks_file is not None or (settings.jwks_endpoint_url or "").startswith("file:")
        self._refresh_ms = (
            min(_FILE_REFRESH_MS, settings.jwks_endpoint_refresh_ms) if local else settings.jwks_endpoint_refresh_ms
        )
        self._data = b""
        self._failed_in_a_row = 0
        self._due_ns = 0
        self._forced_from_ns = 0
        self._waiting: list[Callable[[], object]] = []
        # Protects the work that waits for keys, the times of fetches and `_stopping`.
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.keys: dict[str, list[Key]] = {}
        self.thumbprints: frozenset[str] = frozenset()
        self.changed: Callable[[], object] = lambda: None

    def start(self) -> None:
        """Start the thread that fetches the keys."""
        self._thread.start()

    def submit(self, work: Callable[[], object]) -> None:
        """Call a function on the thread of this object.

        It fetches the keys before, unless the last fetch was less than `jwks_missing_key_interval_ms` ago.
        """
        with self._changed:
            self._waiting.append(work)
            self._changed.notify()

    def refresh(self) -> None:
        """Fetch now. Raises OSError or JwksError, and the keys stay unchanged then."""
        now_ns = self._clock.monotonic_ns()
        self._forced_from_ns = now_ns + self._settings.jwks_missing_key_interval_ms * 1_000_000
        try:
            data = self._fetch()
            if data != self._data:
                self.keys = parse_jwks(data)
                self.thumbprints = frozenset(key.thumbprint() for group in self.keys.values() for key in group)
                self._data = data
                log.info("%d token keys are loaded", sum(map(len, self.keys.values())))
                self.changed()
        except Exception:
            self._failed_in_a_row += 1
            pause_ms = min(
                self._settings.jwks_endpoint_retry_backoff_ms * 2 ** min(self._failed_in_a_row - 1, 30),
                self._settings.jwks_endpoint_retry_backoff_max_ms,
            )
            self._due_ns = now_ns + pause_ms * 1_000_000
            self._failures.add()
            raise
        self._failed_in_a_row = 0
        self._due_ns = now_ns + self._refresh_ms * 1_000_000

    def turn(self) -> float:
        """Fetch if a fetch is due, and call the submitted functions. Return the seconds until the next fetch is due."""
        with self._changed:
            works, self._waiting = self._waiting, []
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._due_ns or (works and now_ns >= self._forced_from_ns):
            try:
                self.refresh()
            except Exception as error:
                log.error("token keys were not reloaded: %s", error)
        for work in works:
            try:
                work()
            except Exception:
                log.exception("work failed")
        return max(0.0, (self._due_ns - self._clock.monotonic_ns()) / 1e9)

    def close(self) -> None:
        """End the thread. It does not wait for a fetch in progress for more than a second."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(1.0)

    def _run(self) -> None:
        while True:
            pause_s = self.turn()
            with self._changed:
                if not self._waiting and not self._stopping:
                    self._changed.wait(pause_s)
                if self._stopping:
                    return
