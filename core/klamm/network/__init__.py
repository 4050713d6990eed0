"""The staged reactor, after Apache Kafka's `SocketServer` and `common.network`.

A listener has one acceptor, and one or more processors with a selector each. The server has one request channel, and
one or more request handlers. A channel belongs to one processor thread at a time, and is never locked. Three things are
passed between threads: new connections (acceptor → processor), requests (processor → handlers) and responses (any
thread → processor).

These modules handle connections and bytes; `klamm.requests` handles requests.
"""
