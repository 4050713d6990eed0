"""Spark sessions with the settings that the pipeline needs, or one clear sentence why there is none."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import urlsplit

from klamm_spark.settings.spark import SparkSettings
from klamm_spark.spark.parquet import PARQUET_CONF

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIN_JAVA: Final = 17
_JAVA_FOLDERS: Final = ("/usr/lib/jvm", "/opt", "/Library/Java/JavaVirtualMachines")
_CONNECT_TIMEOUT_S: Final = 5.0
_DEFAULT_PORTS: Final = {"spark": 7077, "sc": 15002}
_JVM_OPTIONS: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
_CHOSEN_COLLECTOR: Final = re.compile(r"-XX:\+Use\w+GC\b")
_TASKS_FROM_FILES: Final = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_MOST_FILES: Final = str(2**31 - 1)
READING_ALL: Final = {
    "spark.databricks.delta.stats.skipping": "false",
    "spark.databricks.delta.optimizeMetadataQuery.enabled": "false",
    "spark.sql.parquet.filterPushdown": "false",
}
"""No query leaves a file out, or a part of one, by what commits and files say of themselves: nothing proves that."""
# Spark has these itself.
_NOT_WITH_DELTA: Final = (
    "com.fasterxml.jackson.core:*",
    "com.fasterxml.jackson.datatype:*",
    "com.google.guava:*",
    "io.airlift:*",
    "io.unitycatalog:*",
    "org.apache.hadoop:hadoop-client-*",
    "org.apache.hadoop:hadoop-common",
    "org.apache.logging.log4j:*",
    "org.apache.parquet:*",
    "org.apache.spark:*",
    "org.locationtech.jts:*",
    "org.slf4j:*",
    "org.xerial.snappy:*",
)


class SparkUnavailableError(Exception):
    """Spark cannot be used here; the message says what to do about it."""


def require_pyspark() -> None:
    """Raises SparkUnavailableError if PySpark, pandas or PyArrow is not installed."""
    missing = [name for name in ("pyspark", "pandas", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        raise SparkUnavailableError(f"this command needs {', '.join(missing)}: pip install 'klamm[spark]'")


def find_java() -> Path:
    """The `java` for Spark: from `JAVA_HOME`, `PATH` or the usual folders.

    Raises SparkUnavailableError if there is none of `MIN_JAVA` or later.
    """
    home = os.environ.get("JAVA_HOME")
    candidates = [Path(home) / "bin" / "java"] if home else []
    on_path = shutil.which("java")
    if on_path:
        candidates.append(Path(on_path))
    for folder in _JAVA_FOLDERS:
        candidates += sorted(Path(folder).glob("*/bin/java"), reverse=True)
    too_old = ""
    for java in candidates:
        version = java_version(java)
        if version is not None and version >= MIN_JAVA:
            return java
        if version is not None and not too_old:
            too_old = f" ({java} is Java {version})"
    raise SparkUnavailableError(
        f"Spark needs Java {MIN_JAVA} or later{too_old}: install it, e.g. `apt-get install openjdk-17-jre-headless`, "
        "or set JAVA_HOME"
    )


def java_version(java: Path) -> int | None:
    """The major version of a `java`, e.g. 17 or 8; None if it does not run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(match[1]) if match else None


def require_reachable(url: str) -> None:
    """Raises SparkUnavailableError if nothing listens at a `spark://` or `sc://` URL; other URLs are not checked.

    Of several masters, `spark://a:7077,b:7077`, one has to answer. Spark itself would try for a minute and then stop
    with a message about something else.
    """
    scheme, separator, hosts = url.partition("://")
    if scheme not in _DEFAULT_PORTS:
        return
    failures = []
    for one in hosts.split(","):
        address = f"{scheme}{separator}{one}"
        parts = urlsplit(address)
        try:
            host, port = parts.hostname or "", parts.port or _DEFAULT_PORTS[parts.scheme]
        except ValueError as error:
            raise SparkUnavailableError(f'"{url}" is not a URL of a Spark master or server: {error}') from error
        try:
            socket.create_connection((host, port), _CONNECT_TIMEOUT_S).close()
        except OSError as error:
            failures.append(f"nothing answers at {address}: {error.strerror or error}")
        else:
            return
    raise SparkUnavailableError("; ".join(failures))


def delta_package() -> str:
    """Maven's name of Delta's jar for the installed PySpark. Raises SparkUnavailableError."""
    try:
        delta, spark = (importlib.metadata.version(name) for name in ("delta-spark", "pyspark"))
    except importlib.metadata.PackageNotFoundError as error:
        raise SparkUnavailableError(f"a lake needs {error.name}: pip install 'klamm[spark]'") from error
    return f"io.delta:delta-spark_{'.'.join(spark.split('.')[:2])}_2.13:{delta}"


def spark_conf(settings: SparkSettings) -> dict[str, str]:
    """Spark's settings for a command. The user's `conf` overrides them."""
    conf = {
        "spark.driver.memory": settings.driver_memory,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        # HotSpot does not compile methods of more bytes, and one for all columns of an event has more.
        "spark.sql.codegen.hugeMethodLimit": "8000",
        # A task writes so many hours of the lake at once before it sorts its rows by them.
        "spark.sql.maxConcurrentOutputFileWriters": "8",
        # More than there can be between two polls; each poll copies all of them.
        "spark.sql.streaming.numRecentProgressUpdates": "100",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # The default of fifty tasks per snapshot suits much larger tables.
        "spark.databricks.delta.snapshotPartitions": str(settings.shuffle_partitions),
        **READING_ALL,
        # VACUUM always lists folders in this many tasks; Spark's default is 10,000.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",
        **PARQUET_CONF,
    }
    if _is_local(settings.master):
        conf["spark.driver.host"] = conf["spark.driver.bindAddress"] = "127.0.0.1"
        log_settings = Path(__file__).with_name("log4j2.properties").as_uri()
        conf["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={log_settings}{_collector()}"
    given = settings.conf
    if any("delta-spark" in given.get(key, "") for key in ("spark.jars", "spark.jars.packages")):
        return conf | given
    ours = {"spark.jars.packages": delta_package(), "spark.jars.excludes": ",".join(_NOT_WITH_DELTA)}
    # The user's packages are added to ours.
    return conf | given | {key: ",".join(filter(None, (ours[key], given.get(key)))) for key in ours}


def _collector() -> str:
    """An option for the collector of the highest throughput, as a batch may pause. A JVM refuses to start with two."""
    chosen = any(_CHOSEN_COLLECTOR.search(os.environ.get(name, "")) for name in _JVM_OPTIONS)
    return "" if chosen else " -XX:+UseParallelGC"


def open_session(settings: SparkSettings, name: str) -> SparkSession:
    """A session for a command, in this process or at the Spark Connect server that `remote` names.

    Raises SparkUnavailableError if PySpark, Java, the master or the server is missing.
    """
    require_pyspark()
    if settings.remote:
        require_reachable(settings.remote)
        return _connect(settings)
    java = find_java()
    # Spark's scripts use JAVA_HOME before PATH; it is two folders above the real file.
    os.environ["JAVA_HOME"] = str(java.resolve().parents[1])
    require_reachable(settings.master)
    if _is_local(settings.master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Executors must have the same version of Python.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(settings.master).appName(name)
    for key, value in spark_conf(settings).items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise SparkUnavailableError(
            f"Spark does not start with master {settings.master}: {_first_line(error)}"
        ) from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def close_session(spark: SparkSession) -> None:
    """End a session, even if its JVM has ended."""
    with jvm_may_have_ended(lambda line: None):
        spark.stop()


@contextmanager
def jvm_may_have_ended(say: Callable[[str], None]) -> Iterator[None]:
    """Report instead of raise if the JVM has ended: a signal may have ended it too."""
    from py4j.protocol import Py4JError

    try:
        yield
    except (ConnectionError, Py4JError):
        say("Spark has ended already; the next run repeats what it had not committed")


@contextmanager
def files_looked_at_by_driver(spark: SparkSession, settings: SparkSettings) -> Iterator[None]:
    """Let the driver look at the files of a batch, however many: for files of this machine a task for each takes long.

    A user's `conf` that says from how many files on Spark starts tasks stays as it is.
    """
    if _TASKS_FROM_FILES in settings.conf:
        yield
        return
    before = cast("str", spark.conf.get(_TASKS_FROM_FILES))
    spark.conf.set(_TASKS_FROM_FILES, _MOST_FILES)
    try:
        yield
    finally:
        with jvm_may_have_ended(lambda line: None):
            spark.conf.set(_TASKS_FROM_FILES, before)


def _connect(settings: SparkSettings) -> SparkSession:
    from pyspark.sql import SparkSession

    try:
        return SparkSession.builder.remote(settings.remote).getOrCreate()
    except ImportError as error:
        raise SparkUnavailableError(f"Spark Connect needs more: pip install 'pyspark[connect]' ({error})") from error
    except Exception as error:
        raise SparkUnavailableError(f"no session at {settings.remote}: {_first_line(error)}") from error


def _is_local(master: str) -> bool:
    return master.startswith("local") or (urlsplit(master).hostname or "") in ("127.0.0.1", "localhost", "::1")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
