"""The Kafka protocol without I/O: decoding and encoding of messages. It uses no socket, thread or clock.

- `primitives`: Kafka's types.
- `headers`: request and response headers.
- `messages`: one generated module per API, imported when the API is served. `VERSIONS` are the versions that Apache
  Kafka 4.4.0 offers, `DECODABLE` those that klamm can read and write, including older and unstable versions.
- `api_keys`: the APIs and their versions.
- `errors`: Kafka's error codes. `error_responses`: responses that carry an error. `response_errors` and `error_counts`:
  the error codes in a response.
- `records`, `compression`: record batches and their codecs.
- `entities`: replaces the names of topics, groups and other entities in any message; `klamm.wire` has `map_entities`.
"""

from __future__ import annotations

from klamm.wire.entities import map_entities

__all__ = ["map_entities"]
