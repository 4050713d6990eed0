"""Fixtures: one Spark for the whole session, a spool with flaws, and the lake to which the spool was shipped."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from klamm_spark.spool.layout import NO_CHAIN, SEAL_SUFFIX, Seal, chain_of, digests_of, lines_sha256
from tests.audit_samples import sample_events, write_sample_spool
from tests.spark.sessions import delta_session

if importlib.util.find_spec("pyspark") is None:
    # `scripts/test` without `--all` does not install this extra.
    collect_ignore_glob = ["test_*.py"]

EVENTS = 6_000
BAD_LINES = ("no JSON", '{"schema_version":1,"kind":"request"}', '{"schema_version":"one"}', "")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)


class Shipped(NamedTuple):
    """A lake that was filled once from a spool, and the events of the spool. Tests only read it."""

    pipeline: Any
    lake: Any
    events: list[dict[str, Any]]
    said: list[str]


def settings_of(lake: Path | str, **changes: Any) -> Any:
    """Return settings for a small machine."""
    from klamm_spark.settings.spark import SparkSettings

    given = {"lake": lake, "master": "local[2]", "driver_memory": "1g"}
    return SparkSettings(**(given | changes))


def reseal(paths: list[Path]) -> None:
    """Write seals that fit the present content of these segments. The first segment begins the chain of its stream."""
    chain = NO_CHAIN
    for path in paths:
        data, seal = path.read_bytes(), Seal.read(path.with_suffix(SEAL_SUFFIX))
        sha256, previous, sealed = hashlib.sha256(data).hexdigest(), chain, lines_sha256(digests_of(data))
        chain = chain_of(previous, sha256, sealed)
        seal = replace(
            seal,
            sha256=sha256,
            events=data.count(b"\n"),
            size_bytes=len(data),
            previous_chain=previous,
            chain=chain,
            lines_sha256=sealed,
        )
        path.with_suffix(SEAL_SUFFIX).write_bytes(seal.to_json())


@pytest.fixture(scope="session", autouse=True)
def quick_jvms() -> Iterator[None]:
    """Set options for JVMs that live for seconds: the threads of the compiler C2 would cost more than they gain."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Yield a session that reads lakes."""
    session = delta_session(tmp_path_factory.mktemp("warehouse"))
    yield session
    session.stop()


@pytest.fixture
def ship() -> Callable[..., list[str]]:
    """Return `ship(spool, settings)`, which runs `klamm audit ship --once --master none`. It returns the output."""

    def run(spool: Path | str, settings: Any, code: int = 0) -> list[str]:
        from klamm_spark.lake import ship
        from klamm_spark.settings.spark import Pipeline

        said: list[str] = []
        assert ship.run(None, Pipeline(spool, settings), once=True, say=said.append) == code, said
        return said

    return run


@pytest.fixture(scope="session")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Shipped:
    """Return a lake of `EVENTS` sample events over ten minutes.

    The spool has also `BAD_LINES`, and one segment twice.
    """
    from klamm_spark.lake import ship
    from klamm_spark.lake.layout import Lake
    from klamm_spark.settings.spark import Pipeline

    folder = tmp_path_factory.mktemp("shipped")
    events = list(sample_events(EVENTS, step_us=100_000))
    paths = write_sample_spool(folder / "spool", events, events_per_segment=EVENTS // 6)
    with paths[1].open("a") as file:
        file.writelines(line + "\n" for line in BAD_LINES)
    reseal(paths)
    copied = folder / "spool" / "copied"
    copied.mkdir()
    for path in (paths[2], paths[2].with_suffix(SEAL_SUFFIX)):
        (copied / path.name).write_bytes(path.read_bytes())
    settings = settings_of(folder / "lake", max_files_per_trigger=4)
    pipeline = Pipeline(folder / "spool", settings)
    said: list[str] = []
    assert ship.run(None, pipeline, once=True, say=said.append) == 0
    return Shipped(pipeline, Lake(settings.lake), events, said)
