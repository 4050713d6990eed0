"""Events of many hours, each of which is a file of the lake, stop nothing."""

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("deltalake")
pytest.importorskip("duckdb")
from klamm_spark import cli
from klamm_spark.lake import appends, written
from klamm_spark.lake.layout import Lake
from klamm_spark.spool import chain
from tests.audit_samples import sample_events, write_sample_spool

HOUR_US = 3_600_000_000


@pytest.fixture
def command(tmp_path, capsys):
    def run(*arguments):
        capsys.readouterr()
        code = cli.main([*arguments, "--spool", str(tmp_path / "spool"), "--lake", str(tmp_path / "lake")])
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


def test_a_segment_of_too_many_hours_is_set_aside_and_named(tmp_path, command, monkeypatch):
    for module in (chain, written):
        monkeypatch.setattr(module, "MOST_HOURS", 4)
    scattered = list(sample_events(5, first_seq=10, step_us=HOUR_US))
    (few,) = write_sample_spool(tmp_path / "spool", sample_events(10))
    (many,) = write_sample_spool(tmp_path / "spool", scattered)
    write_sample_spool(tmp_path / "spool", sample_events(10, first_seq=15))
    for _ in range(2):
        code, said = command("ship", "--once")
        assert code == 1
        assert f"{many} is set aside: it has events of 5 hours, and at most 4" in said
    code, said = command("verify")
    assert code == 1
    assert f"broken chain: {many} has events of 5 hours: ship sets it aside" in said
    assert "  not shipped: 10-14" in said
    assert str(few) not in said
    monkeypatch.setattr(written, "MOST_HOURS", 5)
    assert command("ship", "--once")[0] == 0
    assert command("verify")[0] == 0


def test_a_batch_whose_commit_would_be_too_large_is_shipped_in_parts(tmp_path, command, monkeypatch):
    for number in range(5):
        write_sample_spool(
            tmp_path / "spool",
            sample_events(4, node=f"node-{number}", start_us=(500_000 + 10 * number) * HOUR_US, step_us=HOUR_US),
        )
    monkeypatch.setattr(appends, "MOST_COMMIT_BYTES", 3_000)
    code, said = command("ship", "--once")
    assert (code, "of 4 files, and at most 3,000 are read" in said) == (2, True)
    monkeypatch.setattr(appends, "MOST_COMMIT_BYTES", 7_000)
    assert command("ship", "--once")[0] == 0
    assert Lake(tmp_path / "lake").table().version() > 2
    code, said = command("verify")
    assert code == 0, said
