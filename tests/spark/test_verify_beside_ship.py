"""Tests of `verify` while `ship` runs: segments that are shipped meanwhile are not reported as missing."""

import pytest

from klamm_spark.lake import anchors, rows
from klamm_spark.settings.spark import Pipeline
from tests.audit_samples import sample_events, write_sample_spool
from tests.spark.conftest import settings_of
from tests.spark.sealed_lake import verified


@pytest.fixture
def beside(ship, tmp_path, monkeypatch):
    """Return a function that runs `verify`. After it has listed the files, another segment is shipped."""
    settings = settings_of(tmp_path / "lake", anchor=str(tmp_path / "anchors"))
    events = list(sample_events(30))
    write_sample_spool(tmp_path / "spool", events[:10])
    ship(tmp_path / "spool", settings)
    files_of, waiting = rows.files_of, [events[10:20], events[20:]]

    def listed(*given, **more):
        found = files_of(*given, **more)
        ship(tmp_path / "spool", settings)
        return found

    def run(*, spool, **more):
        write_sample_spool(tmp_path / "spool", waiting.pop(0))
        with monkeypatch.context() as patch:
            patch.setattr(rows, "files_of", listed)
            return verified(Pipeline(tmp_path / "spool" if spool else None, settings), **more)

    return run


@pytest.mark.parametrize(("spool", "expected"), [(False, 0), (True, 3)])
def test_a_segment_that_is_shipped_meanwhile_is_not_missing(beside, tmp_path, spool, expected):
    code, said = beside(spool=spool, anchors=tmp_path / "anchors")
    assert code == expected, said
    assert not any("lost" in line or "missing" in line for line in said)
    code, said = beside(spool=spool, anchors=tmp_path / "anchors")
    assert code == expected, said
    assert any("lake 20 events (0-19)" in line for line in said), "what is there has been looked at"


def test_a_segment_that_is_anchored_meanwhile_is_not_missing(beside, tmp_path, monkeypatch):
    """`ship` writes an anchor before its seal, and `verify` reads the anchors first."""
    path = tmp_path / "anchors"
    prove, compared = rows.check_rows, []

    def checked(*given):
        # The driver that anchors at this moment leaves this state.
        path.write_bytes(path.read_bytes() + b'{"node":"node-1","segment":"newer","index":9,"chain":""}\n')
        compared.append(given)
        return prove(*given)

    monkeypatch.setattr(rows, "check_rows", checked)
    code, said = beside(spool=False, anchors=path)
    assert (code, len(compared)) == (0, 1), said
    assert len(anchors.read_anchors(path).lines) == 3
