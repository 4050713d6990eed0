"""Groups of consumers: the classic protocol, the consumer protocol of KIP-848, share groups, and committed offsets.

Handlers call `GroupCoordinator`; its `offsets` commits and fetches offsets. The modules:

    coordinator     passes a request to its part
    classic_coordinator  the requests of members of classic groups: join, sync, heartbeat, leave
    administration  describe, list and delete groups
    rebalance       the change from one generation to the next; the sessions of members
    expiration      timers that remove silent members, after all requests that came in time are served
    offsets         commit, fetch, delete, expire
    transactional_offsets  the pending offsets of open transactions
    group_registry  group id → group
    epoch_coordinator  heartbeats with epochs: the common part of consumer, share and streams groups
    epoch_group     members, epochs and state of such a group (`epoch_rows` in the store, `member_timers` the sessions,
                    `targeted_members` for groups whose members reconcile step by step)
    consumer        groups of the consumer protocol; a folder
    share           share groups; a folder
    streams         streams groups; a folder
    assignors       assign partitions to members, for groups in which the server assigns them
    group           the common part of all kinds of groups: id, lock, offsets
    classic_group   members and state of a classic group, and its description for clients (`state` has its transitions)
    metrics         the metrics of groups
    persistence     to and from the store

Each group has one lock, which a thread takes with `with group:`. Nothing here does I/O or waits: the store, the clock
and the scheduler are passed in.
"""
