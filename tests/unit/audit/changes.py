"""Requests that change state, with every field that the audit records, their answers, and the expected events."""

from klamm.wire.api_keys import ApiKey
from klamm.wire.messages import (
    add_offsets_to_txn,
    alter_configs,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    elect_leaders,
    end_txn,
    init_producer_id,
    join_group,
    leave_group,
    offset_commit,
    offset_delete,
    share_group_heartbeat,
    streams_group_heartbeat,
    sync_group,
    txn_offset_commit,
    unregister_controller,
    update_features,
    write_txn_markers,
)
from klamm.wire.messages import (
    add_partitions_to_txn as add_partitions,
)
from klamm.wire.messages import (
    alter_client_quotas as quotas,
)
from klamm.wire.messages import (
    alter_partition_reassignments as reassign,
)
from klamm.wire.messages import (
    alter_replica_log_dirs as log_dirs,
)
from klamm.wire.messages import (
    alter_share_group_offsets as share_offsets,
)
from klamm.wire.messages import (
    alter_user_scram_credentials as users,
)
from klamm.wire.messages import (
    create_delegation_token as create_token,
)
from klamm.wire.messages import (
    delete_share_group_offsets as delete_share,
)
from klamm.wire.messages import (
    expire_delegation_token as expire_token,
)
from klamm.wire.messages import (
    incremental_alter_configs as incremental,
)
from klamm.wire.messages import (
    renew_delegation_token as renew_token,
)
from klamm.wire.messages import (
    streams_group_topology_description_update as topology_description,
)

TOPIC_ID = bytes(range(16))
SECRET = b"a secret that must not be in any event"
K = ApiKey

CASES = {
    K.CREATE_TOPICS: (
        create_topics.CreateTopicsRequest(
            [
                create_topics.CreatableTopic(
                    "t",
                    -1,
                    2,
                    [create_topics.CreatableReplicaAssignment(0, [1, 2])],
                    [
                        create_topics.CreatableTopicConfig("retention.ms", "5"),
                        create_topics.CreatableTopicConfig("my.password", SECRET.decode()),
                    ],
                )
            ],
            validate_only=True,
        ),
        create_topics.CreateTopicsResponse(
            topics=[create_topics.CreatableTopicResult("t", TOPIC_ID, num_partitions=3)]
        ),
        [
            (
                "TOPIC",
                "t",
                {
                    ("partitions", None): "3",
                    ("replication_factor", None): "2",
                    ("topic_id", None): "AAECAwQFBgcICQoLDA0ODw",
                    ("validate_only", None): "true",
                    ("replicas.0", None): "1,2",
                    ("config.retention.ms", "SET"): "5",
                    ("config.my.password", "SET"): "(sensitive)",
                },
            )
        ],
    ),
    K.DELETE_TOPICS: (
        delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicState(None, TOPIC_ID)], ["by-name"]),
        delete_topics.DeleteTopicsResponse(responses=[delete_topics.DeletableTopicResult("t", TOPIC_ID)]),
        [("TOPIC", "t", {("topic_id", None): "AAECAwQFBgcICQoLDA0ODw"}), ("TOPIC", "by-name", {})],
    ),
    K.DELETE_RECORDS: (
        delete_records.DeleteRecordsRequest(
            [delete_records.DeleteRecordsTopic("t", [delete_records.DeleteRecordsPartition(2, 17)])]
        ),
        delete_records.DeleteRecordsResponse(),
        [("TOPIC", "t", {("offset.2", None): "17"})],
    ),
    K.CREATE_PARTITIONS: (
        create_partitions.CreatePartitionsRequest(
            [
                create_partitions.CreatePartitionsTopic(
                    "t", 4, [create_partitions.CreatePartitionsAssignment([1]) for _ in range(2)]
                )
            ],
            validate_only=True,
        ),
        create_partitions.CreatePartitionsResponse(),
        [
            (
                "TOPIC",
                "t",
                {
                    ("partitions", None): "4",
                    ("replicas.2", None): "1",
                    ("replicas.3", None): "1",
                    ("validate_only", None): "true",
                },
            )
        ],
    ),
    K.ALTER_CONFIGS: (
        alter_configs.AlterConfigsRequest(
            [alter_configs.AlterConfigsResource(2, "t", [alter_configs.AlterableConfig("retention.ms", "5")])], True
        ),
        alter_configs.AlterConfigsResponse(),
        [("TOPIC", "t", {("config.retention.ms", "SET"): "5", ("validate_only", None): "true"})],
    ),
    K.INCREMENTAL_ALTER_CONFIGS: (
        incremental.IncrementalAlterConfigsRequest(
            [
                incremental.AlterConfigsResource(
                    4,
                    "0",
                    [
                        incremental.AlterableConfig("a", 0, "1"),
                        incremental.AlterableConfig("b", 1, None),
                        incremental.AlterableConfig("c", 2, "x"),
                        incremental.AlterableConfig("sasl.jaas.config", 0, SECRET.decode()),
                    ],
                )
            ],
            True,
        ),
        incremental.IncrementalAlterConfigsResponse(),
        [
            (
                "BROKER",
                "0",
                {
                    ("config.a", "SET"): "1",
                    ("config.b", "DELETE"): None,
                    ("config.c", "APPEND"): "x",
                    ("config.sasl.jaas.config", "SET"): "(sensitive)",
                    ("validate_only", None): "true",
                },
            )
        ],
    ),
    K.ELECT_LEADERS: (
        elect_leaders.ElectLeadersRequest(1, [elect_leaders.TopicPartitions("t", [3, 0, 1])]),
        elect_leaders.ElectLeadersResponse(),
        [("TOPIC", "t", {("partitions", None): "0-1,3", ("election_type", None): "UNCLEAN"})],
    ),
    K.ALTER_PARTITION_REASSIGNMENTS: (
        reassign.AlterPartitionReassignmentsRequest(
            topics=[
                reassign.ReassignableTopic(
                    "t", [reassign.ReassignablePartition(0, [1, 2]), reassign.ReassignablePartition(1, None)]
                )
            ]
        ),
        reassign.AlterPartitionReassignmentsResponse(),
        [("TOPIC", "t", {("replicas.0", "SET"): "1,2", ("replicas.1", "CANCEL"): None})],
    ),
    K.ALTER_REPLICA_LOG_DIRS: (
        log_dirs.AlterReplicaLogDirsRequest(
            [log_dirs.AlterReplicaLogDir("/d", [log_dirs.AlterReplicaLogDirTopic("t", [0])])]
        ),
        log_dirs.AlterReplicaLogDirsResponse(),
        [("TOPIC", "t", {("partitions", None): "0", ("path", None): "/d"})],
    ),
    K.UPDATE_FEATURES: (
        update_features.UpdateFeaturesRequest(
            feature_updates=[update_features.FeatureUpdateKey("metadata.version", 20, upgrade_type=2)],
            validate_only=True,
        ),
        update_features.UpdateFeaturesResponse(),
        [
            (
                "FEATURE",
                "metadata.version",
                {
                    ("max_version_level", None): "20",
                    ("upgrade_type", None): "2",
                    ("validate_only", None): "true",
                },
            )
        ],
    ),
    K.CREATE_ACLS: (
        create_acls.CreateAclsRequest([create_acls.AclCreation(2, "pay", 4, "User:m", "10.0.0.1", 4, 3)]),
        create_acls.CreateAclsResponse(results=[create_acls.AclCreationResult()]),
        [
            (
                "TOPIC",
                "pay",
                {
                    ("pattern_type", None): "PREFIXED",
                    ("principal", None): "User:m",
                    ("host", None): "10.0.0.1",
                    ("operation", None): "WRITE",
                    ("permission", None): "ALLOW",
                },
            )
        ],
    ),
    K.DELETE_ACLS: (
        delete_acls.DeleteAclsRequest([delete_acls.DeleteAclsFilter(1, None, 1, "User:m", None, 1, 1)]),
        delete_acls.DeleteAclsResponse(
            filter_results=[
                delete_acls.DeleteAclsFilterResult(
                    matching_acls=[delete_acls.DeleteAclsMatchingAcl(0, None, 3, "g", 3, "User:m", "*", 3, 2)]
                )
            ]
        ),
        [
            (
                "ANY",
                "*",
                {
                    ("pattern_type", None): "ANY",
                    ("principal", None): "User:m",
                    ("operation", None): "ANY",
                    ("permission", None): "ANY",
                    ("binding", "FILTER"): None,
                },
            ),
            (
                "GROUP",
                "g",
                {
                    ("pattern_type", None): "LITERAL",
                    ("principal", None): "User:m",
                    ("host", None): "*",
                    ("operation", None): "READ",
                    ("permission", None): "DENY",
                    ("binding", "DELETE"): None,
                },
            ),
        ],
    ),
    K.CREATE_DELEGATION_TOKEN: (
        create_token.CreateDelegationTokenRequest(
            None,
            None,
            [create_token.CreatableRenewers("User", "bob"), create_token.CreatableRenewers("User", "eve")],
            9,
        ),
        create_token.CreateDelegationTokenResponse(
            0, "User", "alice", "User", "alice", 1, 2, 3, token_id="token-1", hmac=SECRET
        ),
        [
            (
                "DELEGATION_TOKEN",
                "token-1",
                {
                    ("owner", None): "User:alice",
                    ("max_lifetime_ms", None): "9",
                    ("expiry_timestamp_ms", None): "2",
                    ("token_hash", None): "0affdb13495461d49f1432af13493bcc",
                    ("renewer", None): "User:eve",
                },
            )
        ],
    ),
    K.RENEW_DELEGATION_TOKEN: (
        renew_token.RenewDelegationTokenRequest(SECRET, 7),
        renew_token.RenewDelegationTokenResponse(0, 8),
        [
            (
                "DELEGATION_TOKEN",
                "",
                {
                    ("token_hash", None): "0affdb13495461d49f1432af13493bcc",
                    ("renew_period_ms", None): "7",
                    ("expiry_timestamp_ms", None): "8",
                },
            )
        ],
    ),
    K.EXPIRE_DELEGATION_TOKEN: (
        expire_token.ExpireDelegationTokenRequest(SECRET, -1),
        expire_token.ExpireDelegationTokenResponse(0, 8),
        [
            (
                "DELEGATION_TOKEN",
                "",
                {
                    ("token_hash", None): "0affdb13495461d49f1432af13493bcc",
                    ("expiry_time_period_ms", None): "-1",
                    ("expiry_timestamp_ms", None): "8",
                },
            )
        ],
    ),
    K.ALTER_USER_SCRAM_CREDENTIALS: (
        users.AlterUserScramCredentialsRequest(
            [users.ScramCredentialDeletion("bob", 1)],
            [users.ScramCredentialUpsertion("alice", 2, 4096, SECRET, SECRET)],
        ),
        users.AlterUserScramCredentialsResponse(),
        [
            ("USER", "bob", {("mechanism", "DELETE"): "SCRAM-SHA-256"}),
            ("USER", "alice", {("mechanism", "UPSERT"): "SCRAM-SHA-512", ("iterations", None): "4096"}),
        ],
    ),
    K.ALTER_CLIENT_QUOTAS: (
        quotas.AlterClientQuotasRequest(
            [
                quotas.RequestEntryData(
                    [quotas.RequestEntityData("user", "alice"), quotas.RequestEntityData("client-id", None)],
                    [quotas.OpData("producer_byte_rate", 10.0), quotas.OpData("request_percentage", 0.0, True)],
                )
            ],
            True,
        ),
        quotas.AlterClientQuotasResponse(),
        [
            (
                kind,
                name,
                {
                    ("entity", None): "user=alice,client-id=<default>",
                    ("quota.producer_byte_rate", "SET"): "10.0",
                    ("quota.request_percentage", "DELETE"): None,
                    ("validate_only", None): "true",
                },
            )
            for kind, name in (("USER", "alice"), ("CLIENT_ID", "<default>"))
        ],
    ),
    K.OFFSET_COMMIT: (
        offset_commit.OffsetCommitRequest(
            "g",
            5,
            "m",
            "i",
            topics=[
                offset_commit.OffsetCommitRequestTopic(
                    "t", partitions=[offset_commit.OffsetCommitRequestPartition(1, 42, committed_metadata="x")]
                )
            ],
        ),
        offset_commit.OffsetCommitResponse(),
        [
            ("GROUP", "g", {("member_id", None): "m", ("instance_id", None): "i", ("generation", None): "5"}),
            ("TOPIC", "t", {("offset.1", None): "42"}),
        ],
    ),
    K.OFFSET_DELETE: (
        offset_delete.OffsetDeleteRequest(
            "g",
            [
                offset_delete.OffsetDeleteRequestTopic(
                    "t", [offset_delete.OffsetDeleteRequestPartition(number) for number in (0, 1, 4)]
                )
            ],
        ),
        offset_delete.OffsetDeleteResponse(),
        [("GROUP", "g", {}), ("TOPIC", "t", {("partitions", None): "0-1,4"})],
    ),
    K.JOIN_GROUP: (
        join_group.JoinGroupRequest("g", member_id="", group_instance_id="i", protocol_type="consumer"),
        join_group.JoinGroupResponse(generation_id=3, member_id="m-1"),
        [
            (
                "GROUP",
                "g",
                {
                    ("member_id", None): "m-1",
                    ("instance_id", None): "i",
                    ("protocol_type", None): "consumer",
                    ("generation", None): "3",
                },
            )
        ],
    ),
    K.SYNC_GROUP: (
        sync_group.SyncGroupRequest(
            "g", 3, "m", "i", assignments=[sync_group.SyncGroupRequestAssignment("m", SECRET)] * 2
        ),
        sync_group.SyncGroupResponse(),
        [
            (
                "GROUP",
                "g",
                {
                    ("member_id", None): "m",
                    ("instance_id", None): "i",
                    ("generation", None): "3",
                    ("assigned_members", None): "2",
                },
            )
        ],
    ),
    K.LEAVE_GROUP: (
        leave_group.LeaveGroupRequest("g", "", [leave_group.MemberIdentity("m", "i")]),
        leave_group.LeaveGroupResponse(),
        [("GROUP", "g", {("member_id", None): "m", ("instance_id", None): "i"})],
    ),
    K.DELETE_GROUPS: (
        delete_groups.DeleteGroupsRequest(["a", "b"]),
        delete_groups.DeleteGroupsResponse(),
        [("GROUP", "a", {}), ("GROUP", "b", {})],
    ),
    K.CONSUMER_GROUP_HEARTBEAT: (
        consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            "g", "m", 0, "i", subscribed_topic_names=["t"], subscribed_topic_regex="t.*"
        ),
        consumer_group_heartbeat.ConsumerGroupHeartbeatResponse(member_id="m"),
        [
            (
                "GROUP",
                "g",
                {
                    ("member_id", None): "m",
                    ("member_epoch", None): "0",
                    ("instance_id", None): "i",
                    ("subscribed_topic_regex", None): "t.*",
                },
            ),
            ("TOPIC", "t", {("subscribed", None): "true"}),
        ],
    ),
    K.SHARE_GROUP_HEARTBEAT: (
        share_group_heartbeat.ShareGroupHeartbeatRequest("g", "m", 0, subscribed_topic_names=["t"]),
        share_group_heartbeat.ShareGroupHeartbeatResponse(),
        [
            ("GROUP", "g", {("member_id", None): "m", ("member_epoch", None): "0"}),
            ("TOPIC", "t", {("subscribed", None): "true"}),
        ],
    ),
    K.STREAMS_GROUP_HEARTBEAT: (
        streams_group_heartbeat.StreamsGroupHeartbeatRequest(
            "g",
            "m",
            -1,
            instance_id="i",
            topology=streams_group_heartbeat.Topology(
                1, [streams_group_heartbeat.Subtopology("0", source_topics=["t"])]
            ),
        ),
        streams_group_heartbeat.StreamsGroupHeartbeatResponse(),
        [
            ("GROUP", "g", {("member_id", None): "m", ("member_epoch", None): "-1", ("instance_id", None): "i"}),
            ("TOPIC", "t", {("subscribed", None): "true"}),
        ],
    ),
    K.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: (
        topology_description.StreamsGroupTopologyDescriptionUpdateRequest("g", "m", 2),
        topology_description.StreamsGroupTopologyDescriptionUpdateResponse(),
        [("GROUP", "g", {("member_id", None): "m", ("topology_epoch", None): "2"})],
    ),
    K.UNREGISTER_CONTROLLER: (
        unregister_controller.UnregisterControllerRequest(3),
        unregister_controller.UnregisterControllerResponse(),
        [("CONTROLLER", "3", {})],
    ),
    K.ALTER_SHARE_GROUP_OFFSETS: (
        share_offsets.AlterShareGroupOffsetsRequest(
            "g",
            [
                share_offsets.AlterShareGroupOffsetsRequestTopic(
                    "t", [share_offsets.AlterShareGroupOffsetsRequestPartition(0, 5)]
                )
            ],
        ),
        share_offsets.AlterShareGroupOffsetsResponse(),
        [("GROUP", "g", {}), ("TOPIC", "t", {("offset.0", None): "5"})],
    ),
    K.DELETE_SHARE_GROUP_OFFSETS: (
        delete_share.DeleteShareGroupOffsetsRequest("g", [delete_share.DeleteShareGroupOffsetsRequestTopic("t")]),
        delete_share.DeleteShareGroupOffsetsResponse(),
        [("GROUP", "g", {}), ("TOPIC", "t", {})],
    ),
    K.INIT_PRODUCER_ID: (
        init_producer_id.InitProducerIdRequest("tx", 60_000),
        init_producer_id.InitProducerIdResponse(producer_id=7, producer_epoch=1),
        [
            (
                "TRANSACTIONAL_ID",
                "tx",
                {
                    ("producer_id", None): "7",
                    ("producer_epoch", None): "1",
                    ("transaction_timeout_ms", None): "60000",
                },
            )
        ],
    ),
    K.ADD_PARTITIONS_TO_TXN: (
        add_partitions.AddPartitionsToTxnRequest(
            [
                add_partitions.AddPartitionsToTxnTransaction(
                    "tx", 7, 1, True, [add_partitions.AddPartitionsToTxnTopic("t", [0, 1])]
                )
            ]
        ),
        add_partitions.AddPartitionsToTxnResponse(),
        [
            (
                "TRANSACTIONAL_ID",
                "tx",
                {("producer_id", None): "7", ("producer_epoch", None): "1", ("verify_only", None): "true"},
            ),
            ("TOPIC", "t", {("partitions", None): "0-1"}),
        ],
    ),
    K.ADD_OFFSETS_TO_TXN: (
        add_offsets_to_txn.AddOffsetsToTxnRequest("tx", 7, 1, "g"),
        add_offsets_to_txn.AddOffsetsToTxnResponse(),
        [
            ("TRANSACTIONAL_ID", "tx", {("producer_id", None): "7", ("producer_epoch", None): "1"}),
            ("GROUP", "g", {}),
        ],
    ),
    K.END_TXN: (
        end_txn.EndTxnRequest("tx", 7, 1, True),
        end_txn.EndTxnResponse(),
        [
            (
                "TRANSACTIONAL_ID",
                "tx",
                {("producer_id", None): "7", ("producer_epoch", None): "1", ("committed", None): "true"},
            )
        ],
    ),
    K.TXN_OFFSET_COMMIT: (
        txn_offset_commit.TxnOffsetCommitRequest(
            "tx",
            "g",
            7,
            1,
            3,
            "m",
            "i",
            [
                txn_offset_commit.TxnOffsetCommitRequestTopic(
                    "t", partitions=[txn_offset_commit.TxnOffsetCommitRequestPartition(0, 9)]
                )
            ],
        ),
        txn_offset_commit.TxnOffsetCommitResponse(),
        [
            ("TRANSACTIONAL_ID", "tx", {("producer_id", None): "7", ("producer_epoch", None): "1"}),
            ("GROUP", "g", {("member_id", None): "m", ("instance_id", None): "i", ("generation", None): "3"}),
            ("TOPIC", "t", {("offset.0", None): "9"}),
        ],
    ),
    K.WRITE_TXN_MARKERS: (
        write_txn_markers.WriteTxnMarkersRequest(
            [write_txn_markers.WritableTxnMarker(7, 1, False, [write_txn_markers.WritableTxnMarkerTopic("t", [0])])]
        ),
        write_txn_markers.WriteTxnMarkersResponse(),
        [
            ("PRODUCER_ID", "7", {("producer_epoch", None): "1", ("committed", None): "false"}),
            ("TOPIC", "t", {("partitions", None): "0"}),
        ],
    ),
}
