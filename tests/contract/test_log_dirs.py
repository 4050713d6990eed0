"""Log directories as clients see them, of a server whose `data_dir` is relative."""

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


def test_replicas_are_taken_where_they_are_reported(tmp_path, monkeypatch):
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
