"""Share groups (KIP-932): the delivery of records to members, and the acknowledgements.

record_state  the states of a record and their transitions
run, runs, run_blocks  adjacent offsets in the same state, and their list
partition     the state of one partition in one group: acquired and done records; no I/O, no lock, no clock
live_partition  such a partition with a lock, timers, reads of the log and durable writes
log_batches   a read of the log, with the boundaries of its batches
partitions    all share partitions, by group; `opening` makes them
sessions      share sessions of clients (their epochs, partitions and end)
fetching      ShareFetch: limits, and the wait for records
acknowledging  ShareAcknowledge, and acknowledgements in ShareFetch
dead_letters  the dead-letter topics of groups
administration  offsets of groups: describe, alter, delete
persistence   to and from the store; `state_changes` selects the rows to write
account       the bytes for which a share partition counts
metrics       the metrics of share groups, from `meters`
"""
