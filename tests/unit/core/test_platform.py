"""The fallbacks of `PLATFORM` do what Linux's calls do, and a server runs where none of those calls are."""

import errno
import fcntl
import os
import random
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from klamm.runtime import PLATFORM
from klamm.runtime.platform import fallbacks, find_platform


def test_this_system_has_its_own_calls():
    assert (PLATFORM.pread, PLATFORM.preadv, PLATFORM.pwrite) == (os.pread, os.preadv, os.pwrite)
    generic = find_platform({"KLAMM_PLATFORM": "generic"})
    assert (generic.epoll, generic.has_eventfd, generic.has_sendfile, generic.has_splice) == (None, False, False, False)
    assert generic.name == "generic"
    with pytest.raises(ValueError, match='KLAMM_PLATFORM="windows": it is unset, or "generic"'):
        find_platform({"KLAMM_PLATFORM": "windows"})


def test_seeking_reads_and_writes_what_positions_do(tmp_path):
    choose, seeking = random.Random(39), fallbacks.SeekingFiles()
    ours, theirs = (os.open(tmp_path / name, os.O_RDWR | os.O_CREAT) for name in ("ours", "theirs"))
    try:
        for _ in range(300):
            position, size_bytes = choose.randrange(2000), choose.randrange(1, 300)
            content = choose.randbytes(size_bytes)
            assert seeking.pwrite(ours, content, position) == os.pwrite(theirs, content, position)
            position, size_bytes = choose.randrange(2500), choose.randrange(1, 500)
            assert seeking.pread(ours, size_bytes, position) == os.pread(theirs, size_bytes, position)
            sizes = [choose.randrange(1, 200) for _ in range(choose.randrange(1, 4))]
            mine, yours = ([bytearray(size) for size in sizes] for _ in range(2))
            assert seeking.preadv(ours, mine, position) == os.preadv(theirs, yours, position)
            assert mine == yours
    finally:
        os.close(ours)
        os.close(theirs)


def test_seeking_threads_do_not_read_each_others_positions(tmp_path):
    seeking = fallbacks.SeekingFiles()
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    try:
        os.pwrite(descriptor, bytes(range(256)) * 4, 0)
        with ThreadPoolExecutor(4) as threads:
            read = threads.map(lambda at: seeking.pread(descriptor, 1, at)[0], [at % 1024 for at in range(4000)])
        assert list(read) == [at % 1024 % 256 for at in range(4000)]
    finally:
        os.close(descriptor)


def windows_locks(descriptor, mode, count):
    """Lock as `msvcrt.locking` does: at the file's position, and with its error."""
    assert mode == "LK_NBLCK"
    assert count == 1
    assert os.lseek(descriptor, 0, os.SEEK_CUR) > 0
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise PermissionError(errno.EACCES, "denied") from error


@pytest.mark.parametrize("kind", ["linux", "generic", "windows"])
def test_a_lock_is_that_of_an_open_file(tmp_path, monkeypatch, kind):
    if kind == "windows":
        monkeypatch.setitem(sys.modules, "fcntl", None)
        monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(locking=windows_locks, LK_NBLCK="LK_NBLCK"))
    take, wait = fallbacks.locks(is_generic=kind == "generic")
    first, second, third = (os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT) for _ in range(3))
    take(first)
    with pytest.raises(BlockingIOError):
        take(second)
    # Another descriptor of the file does not end the lock as it is closed.
    os.close(third)
    with pytest.raises(BlockingIOError):
        take(second)
    os.close(first)
    take(second)
    os.close(second)
    waiting = os.open(tmp_path / "file", os.O_RDWR)
    wait(waiting)
    os.close(waiting)


# What Windows lacks; `sys.platform` changes once Python's own modules are there.
BARE = """
    import fcntl, os, select, signal, sys, types

    def locking(descriptor, mode, count):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise PermissionError(13, "denied") from error

    # Before `selectors`, which chooses at import.
    del select.epoll, select.poll
    import asyncio, concurrent.futures, http.server, logging, multiprocessing, selectors, shutil, socket, sqlite3, ssl
    import subprocess, tempfile, uuid

    gone = {
        os: "sendfile splice eventfd eventfd_read eventfd_write pread preadv pwrite pwritev pipe2 fchmod sched_yield"
            " setpriority getpriority fork O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK",
        signal: "SIGHUP SIGCHLD SIGUSR1 SIGUSR2",
    }
    for module, names in gone.items():
        for name in names.split():
            delattr(module, name)
    for name in ("fcntl", "termios", "resource", "pwd", "grp"):
        sys.modules[name] = None
    sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=2)
    assert selectors.DefaultSelector is selectors.SelectSelector
    sys.platform = "win32"

    import klamm.runtime
    from klamm.testing import EmbeddedServer
    from klamm_sasl import users_command
    from klamm_broker.log.directory_lock import DataDirectoryLockedError, DirectoryLock

    assert type(klamm.runtime.PLATFORM.pread).__name__ == "method"
    with EmbeddedServer(recording=True, data_dir=sys.argv[1]) as server:
        topic = server.create_topic(partitions=3)
        for partition in range(3):
            for number in range(20):
                server.produce(topic, *(f"{partition} {number} " + "x" * 5000 for _ in range(3)), partition=partition)
        before = [record.value for record in server.consume(topic)]
        assert len(before) == 180
        try:
            DirectoryLock(next(server.server.data_dir.rglob(".lock")).parent).take()
        except DataDirectoryLockedError:
            pass
        else:
            raise AssertionError("no lock")
        server.restart()
        assert [record.value for record in server.consume(topic)] == before
    print("it runs")
"""


def test_a_server_runs_without_the_calls_of_linux(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", textwrap.dedent(BARE), tmp_path / "data"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "it runs\n"), done.stderr
