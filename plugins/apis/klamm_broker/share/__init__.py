"""Share groups (KIP-932): the delivery of records to members, and the acknowledgements.

record_state  the states of a record and their transitions
partition     one partition of one group: what is acquired, acknowledged, released; no I/O, no lock, no clock
live_partition  the same with a lock, timers, reads of the log and durable writes
partitions    all of them, by group
sessions      share sessions of clients (their epochs, partitions and end)
fetching      ShareFetch: limits, and the wait for records
acknowledging  ShareAcknowledge, and acknowledgements in ShareFetch
administration  offsets of groups: describe, alter, delete
persistence   to and from the store
metrics       what is counted of them
"""
