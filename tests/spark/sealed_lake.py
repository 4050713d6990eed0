"""A lake of signed segments with a log that a witness has cosigned, an older copy of it, and calls of `verify`."""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from klamm_spark.lake.layout import Lake
from klamm_spark.lake.log_check import check_log
from klamm_spark.lake.proof import Kept, prove
from klamm_spark.lake.rows import LakeRows
from klamm_spark.lake.tasks import Tasks
from klamm_spark.settings.spark import Pipeline
from klamm_spark.spool.layout import SEAL_SUFFIX, Seal
from klamm_spark.spool.signatures import SealSigner, write_key
from klamm_spark.tlog.notes import LOG_KEY, WITNESS_KEY, NoteSigner
from klamm_spark.tlog.witness import Witness
from tests.audit_samples import sample_events, write_sample_spool
from tests.spark.conftest import settings_of
from tests.unit.audit.logged_lake import NOW_S, ORIGIN, WITNESS, served, signer_in

FIRST, LATER = "019b8ff8d000c0ffee00", "019b8ff8d001c0ffee00"
HOUR_US = 3_600_000_000
START_US = 1_767_225_600_000_000
FOLDERS = ("events", "seals", "keys", "tlog")


class Sealed(NamedTuple):
    """A lake with two boots in six signed segments, which are an hour apart, and a copy of it.

    `older` is a copy with only the first boot. `log_signer` signs the lake's log. `kept` is a checkpoint of the log
    that a witness has cosigned.
    """

    pipeline: Any
    lake: Any
    copy: Any
    older: Any
    log_signer: Any
    kept: Any

    def restore(self) -> None:
        for name in FOLDERS:
            shutil.rmtree(self.lake.root / name, ignore_errors=True)
        copy_folders(self.copy, self.lake.root)


def copy_folders(source: Path, target: Path) -> None:
    for name in FOLDERS:
        shutil.copytree(source / name, target / name)


def new_signer(folder: Path) -> SealSigner:
    write_key(folder / "key")
    return SealSigner(folder / "key")


def sign_all(paths: list[Path], signer: SealSigner) -> None:
    for path in paths:
        seal = path.with_suffix(SEAL_SUFFIX)
        seal.write_bytes(signer.signed(Seal.read(seal)).to_json())
    (paths[0].parents[1] / f"{signer.key_id}.pub").write_bytes(signer.public_pem)


def sealed_lake(signer: SealSigner, folder: Path) -> Sealed:
    from klamm_spark.lake import ship

    log_signer = NoteSigner(signer_in(folder, "log"), ORIGIN, LOG_KEY)
    witness_signer = NoteSigner(signer_in(folder, "witness"), WITNESS, WITNESS_KEY)
    witness = Witness(witness_signer, folder / "state", [log_signer.key], lambda: NOW_S)
    lake = Lake(folder / "lake")
    with served(witness) as url:
        log = {"log_key": folder / "log", "log_origin": ORIGIN, "witnesses": (f"{witness.key} {url}",)}
        settings = settings_of(folder / "lake", vkeys=(str(witness.key),), **log)
        for boot, start_us, copy in ((FIRST, START_US, "older"), (LATER, START_US + HOUR_US, "copy")):
            events = sample_events(36, boot=boot, start_us=start_us)
            sign_all(write_sample_spool(folder / "spool", events, events_per_segment=12, final=boot == FIRST), signer)
            assert ship.run(None, Pipeline(folder / "spool", settings), once=True, say=lambda line: None) == 0
            copy_folders(lake.root, folder / copy)
    witness.close()
    kept = shutil.copy(lake.root / "tlog" / "checkpoint", folder / "kept")
    return Sealed(Pipeline(None, settings), lake, folder / "copy", folder / "older", log_signer, kept)


def verified(pipeline: Any, **more: Any) -> tuple[int, list[str]]:
    from klamm_spark.lake import verify

    said: list[str] = []
    return verify.run(None, pipeline, say=said.append, **more), said


def broken(lake: Any, sealed: Any = None) -> Any:
    """Return the breaks that `verify` finds. If `sealed` is given, `verify` uses its kept checkpoint and log."""
    kept = Kept(None, check_log(lake, sealed.pipeline.settings, [sealed.kept])) if sealed else None
    return prove(LakeRows.read(lake, Tasks()), kept).breaks


def digests_now(lake: Any) -> dict[str, list[str]]:
    found, rows = defaultdict(list), LakeRows.read(lake, Tasks())
    for stem, digest in rows.of_segments("segment, digest", list(rows.segments)):
        found[stem].append(digest)
    return found
