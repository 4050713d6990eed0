"""Tests of log directories as clients see them, for a server with a relative `data_dir`."""

from pathlib import Path

from klamm import ErrorCode
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.describe_log_dirs import DescribeLogDirsRequest


def test_clients_can_assign_replicas_to_the_directory_that_the_server_reports(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("linked").symlink_to("data")
    Path("data").mkdir()
    Path("klamm.toml").write_text('[server]\ndata_dir = "linked"\n[listeners.default]\nbind = "127.0.0.1:0"\n')
    with EmbeddedServer(file="klamm.toml") as server, RawClient(server.address()) as client:
        client.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 7)
        (described,) = client.call(DescribeLogDirsRequest(None), 4).results
        assert described.log_dir == str(tmp_path / "data")
        for path, error in (
            (described.log_dir, ErrorCode.NONE),
            (str(tmp_path / "linked"), ErrorCode.NONE),
            ("linked", ErrorCode.LOG_DIR_NOT_FOUND),
            ("/elsewhere", ErrorCode.LOG_DIR_NOT_FOUND),
        ):
            moved = AlterReplicaLogDir(path, [AlterReplicaLogDirTopic("t", [0])])
            (topic,) = client.call(AlterReplicaLogDirsRequest([moved]), 2).results
            assert topic.partitions[0].error_code == error, path
