"""The wire core, without I/O: bytes in, frames and messages out. Nothing here knows a socket, a thread or a clock.

- `primitives`: Kafka's types.
- `headers`: what stands before each body.
- `messages`: one generated module per API, imported when it is served. `VERSIONS` is what Apache Kafka 4.3.1 offers of
  it, `DECODABLE` what can be read and written: older versions too, and one that is not stable yet.
- `api_keys`: which APIs and versions there are.
- `errors`, `error_responses`: Kafka's error codes, and the response that carries one.
- `records`: record batches.
"""
