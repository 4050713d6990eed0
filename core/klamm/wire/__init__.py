"""The Kafka protocol without I/O: bytes to messages and back. Nothing here uses a socket, a thread or a clock.

- `primitives`: Kafka's types.
- `headers`: request and response headers.
- `messages`: one generated module per API, imported when the API is served. `VERSIONS` are the versions that Apache
  Kafka 4.4.0 offers, `DECODABLE` those that can be read and written, including older versions and unstable ones.
- `api_keys`: the APIs and their versions.
- `errors`: Kafka's error codes. `error_responses`: the response that carries one. `response_errors` and `error_counts`:
  the error codes in a response.
- `records`, `compression`: record batches and their codecs.
- `entities`: maps the names of topics, groups and other entities in any message; `map_entities` is `klamm.wire`'s too.
"""

from __future__ import annotations

from klamm.wire.entities import map_entities

__all__ = ["map_entities"]
