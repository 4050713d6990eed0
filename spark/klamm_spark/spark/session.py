"""`open_session`: opens a Spark session for a command, or raises SparkUnavailableError with one clear sentence."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from klamm_spark.settings.spark import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONNECT_TIMEOUT_S: Final = 5.0
_DEFAULT_PORT: Final = 7077


class SparkUnavailableError(Exception):
    """Raised if Spark cannot be used. The message says what to do about it."""


def require_pyspark() -> None:
    """Raise SparkUnavailableError if PySpark is not installed."""
    if importlib.util.find_spec("pyspark") is None:
        raise SparkUnavailableError(
            "this command needs pyspark: pip install 'klamm[spark]', or ship without Spark: --master none"
        )


def require_reachable(url: str) -> None:
    """Raise SparkUnavailableError if nothing listens at a `spark://` URL. Other URLs are not checked.

    Of several masters, `spark://a:7077,b:7077`, one has to answer. Spark itself would try for a minute, and then end
    with a misleading message.
    """
    scheme, separator, hosts = url.partition("://")
    if scheme != "spark":
        return
    failures = []
    for one in hosts.split(","):
        address = f"{scheme}{separator}{one}"
        parts = urlsplit(address)
        try:
            host, port = parts.hostname or "", parts.port or _DEFAULT_PORT
        except ValueError as error:
            raise SparkUnavailableError(f'"{url}" is not a URL of a Spark master: {error}') from error
        try:
            socket.create_connection((host, port), _CONNECT_TIMEOUT_S).close()
        except OSError as error:
            failures.append(f"nothing answers at {address}: {error.strerror or error}")
        else:
            return
    raise SparkUnavailableError("; ".join(failures))


def spark_conf(settings: SparkSettings) -> dict[str, str]:
    """Return Spark's settings for a command. The user's `conf` takes precedence."""
    conf = {
        "spark.driver.memory": settings.driver_memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if _is_local(settings.master):
        conf["spark.driver.host"] = conf["spark.driver.bindAddress"] = "127.0.0.1"
        log_settings = Path(__file__).with_name("log4j2.properties").as_uri()
        conf["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={log_settings}"
    return conf | settings.conf


def open_session(settings: SparkSettings, name: str) -> SparkSession:
    """Return a session for a command. Raises SparkUnavailableError if PySpark, Java or the master is missing."""
    require_pyspark()
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
    """End a session. Its JVM may have ended already, e.g. by the same signal."""
    from py4j.protocol import Py4JError

    with contextlib.suppress(ConnectionError, Py4JError):
        spark.stop()


def _is_local(master: str) -> bool:
    return master.startswith("local") or (urlsplit(master).hostname or "") in ("127.0.0.1", "localhost", "::1")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
