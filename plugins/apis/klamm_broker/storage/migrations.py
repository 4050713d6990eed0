"""The schema of the metadata store, step by step. `Store.open` runs the missing steps. To change the schema, append a
step and leave the others as they are, because files of every version exist.
"""

from __future__ import annotations

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE cluster (
        key TEXT PRIMARY KEY,
        value TEXT NOT NULL
    ) WITHOUT ROWID;

    CREATE TABLE counters (
        name TEXT PRIMARY KEY,
        value INTEGER NOT NULL
    ) WITHOUT ROWID;

    CREATE TABLE topics (
        name TEXT PRIMARY KEY,
        id BLOB NOT NULL UNIQUE,
        partitions INTEGER NOT NULL
    ) WITHOUT ROWID;

    CREATE TABLE configs (
        resource_type INTEGER NOT NULL,
        resource_name TEXT NOT NULL,
        name TEXT NOT NULL,
        value TEXT,
        PRIMARY KEY (resource_type, resource_name, name)
    ) WITHOUT ROWID;

    CREATE TABLE groups (
        group_id TEXT PRIMARY KEY,
        protocol_type TEXT,
        generation_id INTEGER NOT NULL,
        protocol_name TEXT,
        leader_id TEXT,
        state_timestamp_ms INTEGER NOT NULL
    ) WITHOUT ROWID;

    CREATE TABLE group_members (
        group_id TEXT NOT NULL,
        position INTEGER NOT NULL,
        member_id TEXT NOT NULL,
        group_instance_id TEXT,
        client_id TEXT NOT NULL,
        client_host TEXT NOT NULL,
        rebalance_timeout_ms INTEGER NOT NULL,
        session_timeout_ms INTEGER NOT NULL,
        subscription BLOB NOT NULL,
        assignment BLOB NOT NULL,
        PRIMARY KEY (group_id, position)
    ) WITHOUT ROWID;

    CREATE TABLE offsets (
        group_id TEXT NOT NULL,
        topic TEXT NOT NULL,
        partition INTEGER NOT NULL,
        committed_offset INTEGER NOT NULL,
        leader_epoch INTEGER NOT NULL,
        metadata TEXT NOT NULL,
        commit_timestamp_ms INTEGER NOT NULL,
        expire_timestamp_ms INTEGER,
        PRIMARY KEY (group_id, topic, partition)
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE shared_rows (
        table_name TEXT NOT NULL,
        key TEXT NOT NULL,
        row TEXT NOT NULL,
        PRIMARY KEY (table_name, key)
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE pending_offsets (
        producer_id INTEGER NOT NULL,
        group_id TEXT NOT NULL,
        topic TEXT NOT NULL,
        partition INTEGER NOT NULL,
        committed_offset INTEGER NOT NULL,
        leader_epoch INTEGER NOT NULL,
        metadata TEXT NOT NULL,
        commit_timestamp_ms INTEGER NOT NULL,
        PRIMARY KEY (producer_id, group_id, topic, partition)
    ) WITHOUT ROWID;

    CREATE TABLE transactions (
        transactional_id TEXT PRIMARY KEY,
        producer_id INTEGER NOT NULL,
        previous_producer_id INTEGER NOT NULL,
        next_producer_id INTEGER NOT NULL,
        producer_epoch INTEGER NOT NULL,
        last_producer_epoch INTEGER NOT NULL,
        timeout_ms INTEGER NOT NULL,
        state TEXT NOT NULL,
        partitions TEXT NOT NULL,
        start_ms INTEGER NOT NULL,
        update_ms INTEGER NOT NULL,
        client_version INTEGER NOT NULL
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE consumer_groups (
        group_id TEXT PRIMARY KEY,
        epoch INTEGER NOT NULL,
        assignment_epoch INTEGER NOT NULL,
        metadata_hash TEXT NOT NULL
    ) WITHOUT ROWID;

    CREATE TABLE consumer_group_members (
        group_id TEXT NOT NULL,
        member_id TEXT NOT NULL,
        member TEXT NOT NULL,
        PRIMARY KEY (group_id, member_id)
    ) WITHOUT ROWID;

    CREATE TABLE consumer_group_targets (
        group_id TEXT NOT NULL,
        member_id TEXT NOT NULL,
        target TEXT NOT NULL,
        PRIMARY KEY (group_id, member_id)
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE share_groups (
        group_id TEXT PRIMARY KEY,
        epoch INTEGER NOT NULL,
        assignment_epoch INTEGER NOT NULL,
        metadata_hash TEXT NOT NULL
    ) WITHOUT ROWID;

    CREATE TABLE share_group_members (
        group_id TEXT NOT NULL,
        member_id TEXT NOT NULL,
        member TEXT NOT NULL,
        PRIMARY KEY (group_id, member_id)
    ) WITHOUT ROWID;

    CREATE TABLE share_partitions (
        group_id TEXT NOT NULL,
        topic_id BLOB NOT NULL,
        partition INTEGER NOT NULL,
        start_offset INTEGER NOT NULL,
        batches TEXT NOT NULL,
        PRIMARY KEY (group_id, topic_id, partition)
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE added_partitions (
        transactional_id TEXT NOT NULL,
        position INTEGER NOT NULL,
        partitions TEXT NOT NULL,
        PRIMARY KEY (transactional_id, position)
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE state_owners (
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        owner TEXT NOT NULL,
        PRIMARY KEY (kind, name)
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE share_state_batches (
        share_partition INTEGER NOT NULL,
        first_offset INTEGER NOT NULL,
        delivery_state INTEGER NOT NULL,
        delivery_count INTEGER NOT NULL,
        PRIMARY KEY (share_partition, first_offset)
    ) WITHOUT ROWID;

    ALTER TABLE share_partitions RENAME TO old_share_partitions;

    CREATE TABLE share_partitions (
        id INTEGER PRIMARY KEY,
        group_id TEXT NOT NULL,
        topic_id BLOB NOT NULL,
        partition INTEGER NOT NULL,
        start_offset INTEGER NOT NULL,
        end_offset INTEGER NOT NULL,
        UNIQUE (group_id, topic_id, partition)
    );

    INSERT INTO share_partitions (group_id, topic_id, partition, start_offset, end_offset)
    SELECT group_id, topic_id, partition, start_offset, coalesce(
        (SELECT max(json_extract(value, '$[1]')) FROM json_each(batches)), start_offset - 1
    ) FROM old_share_partitions;

    INSERT INTO share_state_batches
    SELECT share_partitions.id, json_extract(value, '$[0]'), json_extract(value, '$[2]'), json_extract(value, '$[3]')
    FROM share_partitions JOIN old_share_partitions AS old USING (group_id, topic_id, partition),
        json_each(old.batches);

    DROP TABLE old_share_partitions;

    CREATE TRIGGER share_partition_gone AFTER DELETE ON share_partitions BEGIN
        DELETE FROM share_state_batches WHERE share_partition = old.id;
    END;
    """,
    """
    ALTER TABLE offsets ADD COLUMN owner TEXT NOT NULL DEFAULT '';
    ALTER TABLE pending_offsets ADD COLUMN owner TEXT NOT NULL DEFAULT '';
    ALTER TABLE group_members ADD COLUMN owner TEXT NOT NULL DEFAULT '';
    """,
    """
    CREATE TABLE streams_groups (
        group_id TEXT PRIMARY KEY,
        epoch INTEGER NOT NULL,
        assignment_epoch INTEGER NOT NULL,
        metadata_hash TEXT NOT NULL,
        validated_epoch INTEGER NOT NULL,
        configs TEXT NOT NULL,
        topology TEXT NOT NULL
    ) WITHOUT ROWID;

    CREATE TABLE streams_group_members (
        group_id TEXT NOT NULL,
        member_id TEXT NOT NULL,
        member TEXT NOT NULL,
        PRIMARY KEY (group_id, member_id)
    ) WITHOUT ROWID;

    CREATE TABLE streams_group_targets (
        group_id TEXT NOT NULL,
        member_id TEXT NOT NULL,
        target TEXT NOT NULL,
        PRIMARY KEY (group_id, member_id)
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE internal_topics (
        name TEXT PRIMARY KEY
    ) WITHOUT ROWID;
    """,
)
"""One script per schema version; `PRAGMA user_version` of a file counts the scripts that were applied to it.

A member and a target of a group are JSON objects; partitions are lists of indexes by topic id, in hex. Tasks are lists
of subtopology id and partition, in a list for each role; a topology and the configs of an assignment are JSON objects.
`share_state_batches` are the states of a share partition's records in flight: each applies up to the next one's first
offset, or to `end_offset`.
`shared_rows` keeps the server's shared tables (users, ACLs, quotas), a JSON object per row.
`pending_offsets` are the offsets that open transactions would commit. `transactions.state` is Kafka's name of the
state, `partitions` a JSON object of partition indexes by topic. `added_partitions` are further partitions of open
transactions, a row for each request.
`state_owners.owner` is the creator of a group, a transactional id or a topic. The object counts towards the creator's
share of the limits. `owner` of an offset or a member is the principal that committed the offset, or joined.
`internal_topics` are the internal topics whose records agree with the other tables; a row exists from a stop to the
next start. `configs.resource_type` is Kafka's `ConfigResource.Type` id (2 topic, 4 broker, 16 client metrics, 32
group). Topic ids are 16 bytes.
"""
