"""Share groups (KIP-932): the delivery of records to members, and the acknowledgements.

record_state  the states of a record and their transitions
partition     the state of one partition in one group: acquired and done records; no I/O, no lock, no clock
live_partition  such a partition with a lock, timers, reads of the log and durable writes
partitions    all share partitions, by group
sessions      share sessions of clients (their epochs, partitions and end)
fetching      ShareFetch: limits, and the wait for records
acknowledging  ShareAcknowledge, and acknowledgements in ShareFetch
administration  offsets of groups: describe, alter, delete
persistence   to and from the store
metrics       the metrics of share groups
"""
