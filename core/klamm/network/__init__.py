"""The staged reactor, after Apache Kafka's `SocketServer` and `common.network`.

One acceptor per listener, N processors with a selector each, one request channel, M request handlers. A channel
belongs to one processor thread at a time; nothing here locks a channel. What crosses threads are new connections
(acceptor → processor), requests (processor → handlers) and responses (any thread → processor).
"""
