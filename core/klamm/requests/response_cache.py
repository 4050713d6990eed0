"""`ResponseCache`: answers equal requests with the same response, while nothing that it depends on has changed.

Clients repeat equal Metadata requests. A handler that declares `unchanged_while` answers equal requests equally, so the
whole frame, less its correlation id, is the key. ApiVersions also names the client's software, which is stored per
connection: a cached response is used only on connections that have named the same software before. Only for listeners
without observers, authorizers and quotas, which need to see each request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, TypeAlias

from klamm.api.context import ConnectionContext
from klamm.metrics.requests import RequestCount
from klamm.requests.pending import PendingRequest, Result
from klamm.wire.api_keys import ApiKey
from klamm.wire.chunks import Buffer

_CAPACITY: Final = 256
_REQUEST_UP_TO_BYTES: Final = 1024
_ANSWER_UP_TO_BYTES: Final = 16 * 1024
_NAMES_SOFTWARE: Final = 3
"""The first version of ApiVersions that names the client's software (KIP-511)."""

_NAMES_NODE: Final = 5
"""The first version of ApiVersions that names a node (KIP-1242): a listener may have a port for each node."""

_Entry: TypeAlias = "tuple[Callable[[], object], object, bytes, bytes, RequestCount | None, tuple[str, str] | None]"


class ResponseCache:
    """The answers of one processor, which alone uses it. `api_keys` are the APIs whose answers may be kept.

    A request that is due to be timed is not answered from here: it is the sample for those that are. An answer is kept
    when its request comes for the second time: requests that differ, as most do, then cost little more than without a
    cache. `is_wanted` is True if that holds for the request of the last `find`.
    """

    __slots__ = ("_answers", "_api_keys", "_seen", "is_wanted")

    def __init__(self, api_keys: Collection[int]) -> None:
        self._api_keys = frozenset(api_keys)
        self._answers: dict[bytes, _Entry] = {}
        self._seen: set[bytes] = set()
        self.is_wanted = False

    def find(self, frame: Buffer, connection: ConnectionContext) -> bytes | None:
        """The whole frame to send for a request frame, or None if the request has to be executed."""
        self.is_wanted = False
        # The lower byte of the API key: of most APIs nothing is ever kept.
        if not 1 < len(frame) <= _REQUEST_UP_TO_BYTES or frame[1] not in self._api_keys:
            return None
        key = bytes(frame[:4]) + frame[8:]
        entry = self._answers.get(key)
        if entry is None:
            self._note_miss(key)
            return None
        unchanged_while, token, size, rest, count, software = entry
        if unchanged_while() != token:
            self.is_wanted = True
            return None
        if software is not None and software != (connection.client_software_name, connection.client_software_version):
            self.is_wanted = True
            return None
        if count is not None:
            if count.until_sample < 1:
                return None
            count.until_sample -= 1
        return size + frame[4:8] + rest

    def _note_miss(self, key: bytes) -> None:
        if key in self._seen:
            self.is_wanted = True
            return
        if len(self._seen) >= _CAPACITY:
            self._seen.clear()
        self._seen.add(key)

    def keep(
        self,
        frame: Buffer,
        unchanged_while: Callable[[], object],
        token: object,
        result: Result,
        request: PendingRequest,
        count: RequestCount | None,
    ) -> None:
        """Remember what answered a request frame; `token` is from before the handler ran."""
        if not isinstance(result, list) or len(result) != 1:
            return
        answer = result[0]
        if not isinstance(answer, bytes) or len(answer) > _ANSWER_UP_TO_BYTES:
            return
        software = None
        context = request.context
        if context.api_key == ApiKey.API_VERSIONS and context.api_version >= _NAMES_NODE:
            return
        if context.api_key == ApiKey.API_VERSIONS and context.api_version >= _NAMES_SOFTWARE:
            connection = context.connection
            software = connection.client_software_name, connection.client_software_version
        if len(self._answers) >= _CAPACITY:
            self._answers.clear()
        key = bytes(frame[:4]) + frame[8:]
        self._answers[key] = (unchanged_while, token, answer[:4], answer[8:], count, software)
