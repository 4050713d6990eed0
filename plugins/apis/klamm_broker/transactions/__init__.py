"""Transactions: the coordinator of transactional producers (KIP-98, KIP-360, KIP-588, KIP-890).

    coordinator  the requests of producers, timeouts, expiry
    ending       checks if a transaction may end, by the client's `transaction.version`
    ends         the steps from the decision to the completion; recovery
    markers      markers in the logs of partitions
    transaction_registry  transactional id → transaction; durable transitions
    transaction  one transactional id (`state` has its transitions)
    offsets_partition  the partition that stands for the offsets of a group
    persistence  writing to and reading from the store

A transaction ends in three steps, each durable before the next starts: the decision (PrepareCommit, PrepareAbort), the
markers in all its partitions, and the completion together with the offsets that it commits. After a kill, the next
start of the server completes the transaction. Each transactional id has one lock. A batch is appended under this lock,
so that none follows the marker.
"""
