"""`klamm audit …`: parses the arguments and calls the module of the command. Only `ship` may start a JVM."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from klamm import escape_control_characters
from klamm.config import CommandParser, check_table
from klamm_spark.errors import LakeError
from klamm_spark.events.event import FORGETTABLE
from klamm_spark.findings import command as detect
from klamm_spark.lake.layout import MIN_KEEP_HOURS, Lake, require_packages
from klamm_spark.report.queries import ORDER
from klamm_spark.settings.moments import parse_since
from klamm_spark.settings.spark import NO_SPARK, Pipeline, SparkSettings, read_pipeline
from klamm_spark.spark.session import SparkUnavailableError, close_session
from klamm_spark.spool.reader import require_spool, spool_of
from klamm_spark.spool.signatures import KeyFileError
from klamm_spark.storage.filesystems import FileSystemError, check_location, parse_location, path_of
from klamm_spark.terminal import commands as terminal
from klamm_spark.terminal import evidence, iceberg, rights

EXIT_USAGE: Final = 2
_MOST_KEEP_HOURS: Final = 1_000_000
"""The largest `--keep-hours`. Delta converts them to milliseconds."""
_TAKE_A_FOLDER: Final = ("report", "detect", "verify", "forget", "prove")
_SETTINGS: Final = (
    "spool",
    "lake",
    "master",
    "driver_memory",
    "trigger_interval_ms",
    "max_bytes_per_trigger",
    "max_files_per_trigger",
    "key_ids",
    "lake_id",
    "vkeys",
    "timestamp_roots",
)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments of all subcommands."""
    top = CommandParser(prog="klamm audit", description="Read the audit spool; ship it to a lake, and read the lake.")
    commands: argparse._SubParsersAction[Any] = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    file = argparse.ArgumentParser(add_help=False)
    file.add_argument("file", metavar="FILE", nargs="?", type=Path, help="TOML file with [audit] and [audit.spark]")
    common = argparse.ArgumentParser(add_help=False, parents=[file])
    common.add_argument("--lake", metavar="DIR", type=_location, help="where the lake is: a folder or a URI")
    spool = argparse.ArgumentParser(add_help=False)
    spool.add_argument("--spool", metavar="DIR", type=_location, help="where the spool is: a folder or a URI")

    ship = commands.add_parser("ship", parents=[common, spool], help="write sealed segments of the spool to the lake")
    add_ship_arguments(ship)
    submit = commands.add_parser(
        "submit", parents=[common, spool], help="print the spark-submit line that ships from a cluster"
    )
    add_ship_arguments(submit)
    submit.add_argument("--run", action="store_true", help="run it instead of printing it")
    submit.add_argument(
        "--archive",
        metavar="FILE",
        type=Path,
        default=Path("klamm-audit.zip"),
        help="where to write the code that executors need; default: klamm-audit.zip",
    )
    submit.add_argument(
        "--python",
        metavar="PROGRAM",
        default=sys.executable,
        help="Python of the cluster's machines; default: this one",
    )
    compact = commands.add_parser("compact", parents=[common], help="merge small files of the lake; delete old ones")
    compact.add_argument(
        "--keep-hours",
        type=_keep_hours,
        default=MIN_KEEP_HOURS,
        metavar="N",
        help=f"how long to keep files that were merged: at least {MIN_KEEP_HOURS}, the default",
    )
    _add_evidence(commands, common, spool)
    key = commands.add_parser("key", help="write a key that signs the seals of the spool, for [audit] signing_key")
    key.add_argument("path", metavar="FILE", type=Path, help="a file that does not exist yet")
    _add_report(commands, [common, spool])
    detect.add_command(commands, [common, spool], _since)
    terminal.add_commands(commands, [file, spool], _since)
    evidence.add_commands(commands, [common])
    rights.add_commands(commands, [file, spool])
    iceberg.add_commands(commands, [file, spool])
    return top


def _add_report(commands: Any, parents: list[argparse.ArgumentParser]) -> None:
    """Add the command `report`."""
    report = commands.add_parser(
        "report", parents=parents, help="report on the events of a spool or a lake, as text and HTML"
    )
    report.add_argument("--since", metavar="WHEN", type=_since, help="e.g. 24h, 7d, 2026-01-31; default: everything")
    shown = report.add_mutually_exclusive_group()
    shown.add_argument("--html", metavar="FILE", type=Path, help="write the report as one HTML file too")
    shown.add_argument("--question", choices=ORDER, metavar="NAME", help=f"answer only this one: {', '.join(ORDER)}")
    report.add_argument(
        "--where",
        metavar="SQL",
        default="",
        help="with --question: a condition on its columns: \"principal = 'User:a'\"",
    )


def _add_evidence(commands: Any, common: argparse.ArgumentParser, spool: argparse.ArgumentParser) -> None:
    """Add the commands `verify` and `forget`."""
    verify = commands.add_parser(
        "verify", parents=[common, spool], help="verify spool and lake, or only a lake; name missing events"
    )
    verify.add_argument("--anchors", metavar="FILE", type=_location, help="anchored seals, to compare with the lake")
    verify.add_argument(
        "--key-id",
        metavar="ID",
        dest="key_ids",
        action="append",
        help="trust only keys with these ids; may be repeated",
    )
    verify.add_argument("--lake-id", metavar="ID", help="accept only records of forgotten events that name this lake")
    verify.add_argument(
        "--checkpoint",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="a checkpoint of the log that was kept elsewhere; may be repeated",
    )
    verify.add_argument(
        "--vkey",
        metavar="VKEY",
        dest="vkeys",
        action="append",
        help="a key that must have signed it: a witness's, or the log's; may be repeated",
    )
    verify.add_argument(
        "--timestamp-roots",
        metavar="FILE",
        type=Path,
        help="certificates, in PEM, of the authority that has stamped the log's checkpoints",
    )
    forget = commands.add_parser("forget", parents=[common], help="delete old events of the lake, and keep proofs")
    forget.add_argument(
        "--older-than",
        metavar="AGE",
        type=_since,
        help="e.g. 400d, 12w, or a date such as 2026-01-31; default: by the ages of [audit.spark] keep",
    )
    forget.add_argument("--kind", choices=FORGETTABLE, action="append", default=[], help="only these; may be repeated")
    forget.add_argument("--key", metavar="FILE", type=Path, help="a key of klamm audit key, to sign the record")


def _location(text: str) -> str | Path:
    problem = check_location(text)
    if problem is not None:
        raise argparse.ArgumentTypeError(problem)
    return parse_location(text, Path())


def _since(text: str) -> datetime:
    try:
        return parse_since(text, datetime.now(UTC))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _keep_hours(text: str) -> float:
    hours = float(text)
    if not hours >= MIN_KEEP_HOURS:
        raise argparse.ArgumentTypeError(f"must be at least {MIN_KEEP_HOURS}: Delta deletes no younger files")
    if hours > _MOST_KEEP_HOURS:
        raise argparse.ArgumentTypeError(f"must be at most {_MOST_KEEP_HOURS:,}")
    return hours


def add_ship_arguments(ship: argparse.ArgumentParser) -> None:
    """Add the arguments of `ship`, which `submit` accepts too."""
    ship.add_argument("--master", metavar="URL", help="a master of Spark that runs the tasks; default: none")
    ship.add_argument("--driver-memory", metavar="SIZE", help="memory of the driver, e.g. 2g")
    ship.add_argument("--once", action="store_true", help="end when all segments that are sealed now are shipped")
    ship.add_argument(
        "--trigger-interval-ms", type=int, metavar="N", help="pause before it looks again when nothing waits"
    )
    ship.add_argument("--max-bytes-per-trigger", type=int, metavar="N", help="bytes of segments in a batch")
    ship.add_argument("--max-files-per-trigger", type=int, metavar="N", help="segments in a batch instead")


def main(arguments: list[str]) -> int:
    """Run `klamm audit`. Return the exit code, which is 2 for errors that the caller can correct. Raises ConfigError.

    A signal ends the command by SystemExit with 130 or 143, or with a code of the command's own.
    """
    options = parser().parse_args(arguments)
    if options.command == "key":
        return _make_key(options.path)
    if options.command == "sql" and Path(options.query).is_file():
        parser().error(f"the QUERY comes before the FILE: klamm audit sql QUERY {options.query}")
    _place_folder(options)
    given: dict[str, Any] = {key: getattr(options, key, None) for key in _SETTINGS}
    pipeline = read_pipeline(getattr(options, "file", None), given)
    try:
        with _ended_by_signals():
            return _run(options, pipeline)
    except (KeyFileError, LakeError, FileSystemError, SparkUnavailableError) as error:
        say(f"klamm audit {options.command}: {error}")
    except BrokenPipeError:
        raise
    except OSError as error:
        # E.g. a full disk.
        said = f"{error.filename}: {error.strerror}" if error.filename else " ".join(str(error).split())
        say(f"klamm audit {options.command}: {said}")
    return EXIT_USAGE


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Make SIGTERM and SIGINT raise exceptions in the block, so that temporary files are removed.

    A second signal ends the process at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def end(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        received.append(number)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    except (Exception, KeyboardInterrupt):
        if received:
            # DuckDB raises its own error if a signal interrupts a query.
            sys.exit(128 + received[0])
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _make_key(path: Path) -> int:
    from klamm_spark.spool.signatures import write_key

    try:
        print(f"{path}: the key {write_key(path)}")
    except OSError as error:
        print(f"klamm audit key: {path}: {error.strerror}", file=sys.stderr)
        return EXIT_USAGE
    return 0


def shipping_arguments(options: argparse.Namespace) -> list[str]:
    """Return the arguments of `submit` that `ship` takes too, with absolute paths."""
    arguments = [str(options.file.resolve())] if options.file else []
    for name in ("spool", "lake"):
        location = getattr(options, name)
        if location is not None:
            arguments += [f"--{name}", str(location.resolve() if isinstance(location, Path) else location)]
    for name in ("driver_memory", "trigger_interval_ms", "max_bytes_per_trigger", "max_files_per_trigger"):
        if getattr(options, name) is not None:
            arguments += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    return [*arguments, "--once"] if options.once else arguments


def _run(options: argparse.Namespace, pipeline: Pipeline) -> int:
    if options.command in terminal.COMMANDS:
        return terminal.run(options, pipeline)
    if options.command in evidence.COMMANDS:
        return evidence.run(options, pipeline, say)
    if options.command in rights.COMMANDS:
        return rights.run(options, pipeline, say)
    if options.command in iceberg.COMMANDS:
        return iceberg.run(options, pipeline, say)
    if options.command == "submit":
        from klamm_spark.spark import submit

        return submit.run(
            pipeline,
            shipping_arguments(options),
            archive=options.archive.resolve(),
            python=options.python,
            execute=options.run,
            say=say,
        )
    _check(options, pipeline)
    if options.command in ("report", "detect"):
        return _run_on_events(options, pipeline)
    require_packages()
    return _ship(options, pipeline) if options.command == "ship" else _run_on_lake(options, pipeline)


def _place_folder(options: argparse.Namespace) -> None:
    """Treat a folder in place of the TOML file as the lake if it has events or seals, and else as the spool."""
    if options.command in _TAKE_A_FOLDER and options.file is not None and options.file.is_dir():
        place = "lake" if any((options.file / name).is_dir() for name in ("events", "seals")) else "spool"
        setattr(options, place, options.file.resolve())
        options.file = None


def _place_of_events(options: argparse.Namespace, pipeline: Pipeline) -> Path | Lake:
    """Return the place to read events from: the spool if it is given or if there is no lake yet, else the lake.

    `detect --follow` prefers the spool, because the spool gets events earlier than the lake.
    """
    lake = Lake.of(pipeline.settings)
    follows = options.command == "detect" and options.follow
    if options.lake is None and isinstance(pipeline.spool, Path):
        no_lake = isinstance(lake.root, Path) and not lake.events.is_dir()
        if options.spool is not None or follows or no_lake:
            return pipeline.spool
    require_packages()
    return lake


def _check(options: argparse.Namespace, pipeline: Pipeline) -> None:
    """Check everything that needs no Spark, because Spark takes seconds to start. Raises LakeError."""
    given = {key: getattr(options, key, None) for key in _SETTINGS if key not in ("spool", "lake", "timestamp_roots")}
    for key, message in check_table(SparkSettings, {key: value for key, value in given.items() if value is not None}):
        raise LakeError(f"--{key.replace('_', '-')} {message}")
    alone = options.command == "verify" and pipeline.spool is None and options.lake is not None
    if options.command in ("ship", "verify") and not alone:
        spool = spool_of(pipeline)
        if isinstance(spool, Path):
            require_spool(spool)
    if options.command == "forget" and not _ages(options, pipeline.settings):
        raise LakeError("how old may events be? Give --older-than, or keep in [audit.spark]")
    html = getattr(options, "html", None)
    if html is not None and (html.is_dir() or not html.parent.is_dir()):
        raise LakeError(f"--html {html} cannot be written: " + ("is a folder" if html.is_dir() else "no such folder"))


def _ship(options: argparse.Namespace, pipeline: Pipeline) -> int:
    from klamm_spark.lake import ship
    from klamm_spark.spark.session import open_session

    settings = pipeline.settings
    if settings.master == NO_SPARK:
        if settings.conf:
            say("conf in [audit.spark] changes nothing: threads of this process ship, because master is none")
        return ship.run(None, pipeline, once=options.once, say=say)
    spark = open_session(settings, "klamm audit ship")
    try:
        return ship.run(spark, pipeline, once=options.once, say=say)
    finally:
        close_session(spark)


def _run_on_events(options: argparse.Namespace, pipeline: Pipeline) -> int:
    place = _place_of_events(options, pipeline)
    if options.command == "detect":
        return detect.run(options, place, say)
    from klamm_spark.report import command as report

    asked = report.Asked(options.question, options.where)
    return report.run(place, since=options.since, html=options.html, asked=asked, print_line=say)


def _run_on_lake(options: argparse.Namespace, pipeline: Pipeline) -> int:
    if options.command == "compact":
        from klamm_spark.lake import compact

        return compact.run(pipeline, keep_hours=options.keep_hours, say=say)
    if options.command == "forget":
        return _forget(options, pipeline)
    from klamm_spark.lake import verify

    # Do not resolve the path: the resolved name of a pipe is not a file.
    anchors = path_of(options.anchors) if isinstance(options.anchors, str) else options.anchors
    return verify.run(None, pipeline, say=_print, anchors=anchors, checkpoints=options.checkpoint)


def _forget(options: argparse.Namespace, pipeline: Pipeline) -> int:
    from klamm_spark.lake import forget

    for before, kinds in _ages(options, pipeline.settings).items():
        before_us = int(before.timestamp() * 1_000_000)
        forget.run(pipeline, before_us=before_us, kinds=kinds, key=options.key, say=say)
    return 0


def _ages(options: argparse.Namespace, settings: SparkSettings) -> dict[datetime, list[str]]:
    """Return the kinds to forget, by the time before which their events are old: of the command, or else of the
    settings.
    """
    if options.older_than is not None:
        return {options.older_than: options.kind}
    now, found = datetime.now(UTC), dict[datetime, list[str]]()
    for kind, age in settings.keep.items():
        if not options.kind or kind in options.kind:
            found.setdefault(parse_since(age, now), []).append(kind)
    return found


def say(line: str) -> None:
    """Print a line for the user to standard error."""
    print(escape_control_characters(line), file=sys.stderr, flush=True)


def _print(line: str) -> None:
    # The lake may have names that would hide lines on a terminal.
    print(escape_control_characters(line))
