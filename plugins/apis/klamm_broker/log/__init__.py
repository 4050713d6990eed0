"""The logs of partitions, in Kafka's format on disk.

A data directory has one directory per partition, and common checkpoints:

    .lock                                 held while a process uses the directory
    .kafka_cleanshutdown                  present after a clean shutdown, until the next start
    recovery-point-offset-checkpoint      per partition, the offset up to which the disk has all records
    log-start-offset-checkpoint           per partition, the first offset that readers may see
    cleaner-offset-checkpoint             per partition, the offset up to which it was compacted
    checkpoint-topic-ids                  per partition, the topic id of the entries in the other three files
    TOPIC-PARTITION/
        partition.metadata                the topic's id
        leader-epoch-checkpoint           where each leader epoch starts
        00000000000000000042.log          a segment: record batches from offset 42 on
        00000000000000000042.index        offset to position
        00000000000000000042.timeindex    timestamp to offset
        00000000000000000042.txnindex     aborted transactions, if there are any
        00000000000000000042.snapshot     the producers' state at offset 42

Suffixes mark work in progress: files with `.deleted` and directories with `-delete` will be removed; `.cleaned` and
`.swap` belong to compaction. Data that cannot be used is kept with the suffix `.set-aside`, a whole directory with
`-stray`.

Threads: `LogFlusher` has a thread for syncs that others wait for. Periodic work runs on the caller's thread. Each log
has a lock for changes. Readers take no lock, and see the state that `PartitionLog` publishes after each write.
`LogManager` has a lock for its table of logs.
"""
