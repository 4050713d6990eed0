"""Exceptions of Hadoop and Java as exceptions of klamm, with one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

_JARS: Final = {
    "s3a": "org.apache.hadoop:hadoop-aws",
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), "org.apache.hadoop:hadoop-azure"),
    "gs": "org.apache.hadoop:hadoop-gcp",
    "oss": "org.apache.hadoop:hadoop-aliyun",
}
_MAX_MESSAGE_CHARS: Final = 400


class FileSystemError(OSError):
    """A file system cannot be used; the message says which path, and why."""


@contextmanager
def translated(uri: str, version: str = "VERSION") -> Iterator[None]:
    """Raise FileSystemError or FileNotFoundError for exceptions of Hadoop. `version` is Hadoop's."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except Py4JJavaError as error:
        raise translate(uri, list(_chain(error.java_exception)), version) from error
    except PySparkException as error:
        # PySpark has its own classes for some of Java's.
        raise translate(uri, [(type(error).__name__, getattr(error, "_desc", None) or str(error))], version) from error


@contextmanager
def translated_errors(uri: str) -> Iterator[None]:
    """Raise FileSystemError for every exception of Hadoop: for a command whose spool or lake is at a URI."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        with translated(uri):
            yield
    except FileNotFoundError as error:
        if not isinstance(error.__cause__, (Py4JJavaError, PySparkException)):
            raise
        raise FileSystemError(f"{uri} cannot be used: {error}") from error


def translate(uri: str, chain: list[tuple[str, str]], version: str) -> FileSystemError | FileNotFoundError:
    """The exception for a path, by the simple names and messages of Java's exception and of its causes."""
    names = [name for name, _ in chain]
    name, message = chain[0]
    said = message.strip().removeprefix(f"{uri}: ").partition("\n")[0][:_MAX_MESSAGE_CHARS] or name
    scheme = uri.partition(":")[0]
    if {"ClassNotFoundException", "UnsupportedFileSystemException"} & set(names):
        return FileSystemError(f"Spark has no file system for {scheme}://{_jar_of(scheme, version)}")
    if "UnknownStoreException" in names or "NoSuchBucketException" in names:
        return FileSystemError(f"there is no such bucket: {uri}")
    if name in ("FileNotFoundException", "NoSuchFileException"):
        return FileNotFoundError(said)
    if {"NoAuthWithAWSException", "NoAwsCredentialsException"} & set(names):
        return FileSystemError(f"{uri}: no credentials were found: {said}")
    if name in ("AccessDeniedException", "AccessControlException"):
        return FileSystemError(f"{uri}: access is denied: {said}")
    return FileSystemError(f"{uri} cannot be used: {said}")


def _chain(exception: Any) -> Iterator[tuple[str, str]]:
    """Simple names and messages of an exception and its causes."""
    while exception is not None:
        yield str(exception.getClass().getSimpleName()), str(exception.getMessage() or "")
        exception = exception.getCause()


def _jar_of(scheme: str, version: str) -> str:
    package = _JARS.get(scheme)
    if package is None:
        return ": add the jar that has it to conf, as spark.jars or spark.jars.packages"
    return f': add its jar to conf, e.g. "spark.jars.packages" = "{package}:{version}"'
