"""Tests of the fallbacks of `PLATFORM`: they do the same as Linux's calls, and a server runs with all of them."""

import contextlib
import errno
import fcntl
import importlib.util
import os
import random
import resource
import selectors
import socket
import struct
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from klamm.runtime import PLATFORM
from klamm.runtime.platform import fallbacks, find_platform, open_files, processes
from klamm.runtime.platform.sockets import ended_connections
from tests.waiting import wait_until

LACKS = {
    "epoll": None,
    "has_eventfd": False,
    "has_sendfile": False,
    "has_splice": False,
    "has_memory_files": False,
    "has_thread_priorities": False,
    "accepted_inherit": False,
    "keeps_open_files": False,
    "selector": selectors.PollSelector,
    "sender_of_parts": fallbacks.sender_in_turns,
}


def test_this_system_has_its_own_calls():
    assert (PLATFORM.pread, PLATFORM.preadv, PLATFORM.pwrite) == (os.pread, os.preadv, os.pwrite)
    generic = find_platform({"KLAMM_PLATFORM": "generic"})
    assert generic.name == "generic"
    assert {name: getattr(generic, name) for name in LACKS} == LACKS
    with pytest.raises(ValueError, match='KLAMM_PLATFORM must be unset or "generic", not "windows"'):
        find_platform({"KLAMM_PLATFORM": "windows"})


def test_reads_and_writes_with_seek_equal_those_with_positions(tmp_path):
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


def test_threads_that_seek_do_not_disturb_each_other(tmp_path):
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
def test_a_lock_belongs_to_an_open_file(tmp_path, monkeypatch, kind):
    if kind == "windows":
        monkeypatch.setitem(sys.modules, "fcntl", None)
        monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(locking=windows_locks, LK_NBLCK="LK_NBLCK"))
    take, wait = fallbacks.locks(is_generic=kind == "generic")
    first, second, third = (os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT) for _ in range(3))
    take(first)
    with pytest.raises(BlockingIOError):
        take(second)
    # Closing another descriptor of the file does not release the lock.
    os.close(third)
    with pytest.raises(BlockingIOError):
        take(second)
    os.close(first)
    take(second)
    os.close(second)
    waiting = os.open(tmp_path / "file", os.O_RDWR)
    wait(waiting)
    os.close(waiting)


@pytest.mark.parametrize(
    ("flags", "access", "disposition"),
    [
        (os.O_RDONLY, 0x8000_0000, 3),
        (os.O_RDWR, 0xC000_0000, 3),
        (os.O_RDWR | os.O_CREAT, 0xC000_0000, 4),
        (os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0x4000_0000, 2),
        (os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0x4000_0000, 1),
        (os.O_WRONLY | os.O_TRUNC, 0x4000_0000, 5),
    ],
)
def test_on_windows_an_open_file_can_be_renamed_and_deleted(monkeypatch, flags, access, disposition):
    calls = []
    system = SimpleNamespace(CreateFile=lambda *given: calls.append(given) or 7, CloseHandle=calls.append)
    monkeypatch.setitem(sys.modules, "_winapi", system)
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(open_osfhandle=lambda handle, _flags: handle * 2))
    assert open_files.open_shared("C:/x", flags, 0o600) == 14
    assert calls == [("C:/x", access, 7, 0, disposition, 0x80, 0)]
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace())
    with pytest.raises(AttributeError):
        open_files.open_shared("C:/x", flags, 0o600)
    assert calls[2:] == [7]


def test_a_rename_waits_for_a_name_that_is_in_use_for_a_moment(tmp_path, monkeypatch):
    (tmp_path / "old").write_text("new")
    monkeypatch.setattr(open_files, "_LOOK_EVERY_S", 0)
    refusals, replace = [PermissionError()] * 3, os.replace

    def refusing(source, target):
        if refusals:
            raise refusals.pop()
        replace(source, target)

    monkeypatch.setattr(os, "replace", refusing)
    open_files.replace_patiently(tmp_path / "old", tmp_path / "new")
    assert (tmp_path / "new").read_text() == "new"
    refusals += [PermissionError()] * 100
    with pytest.raises(PermissionError):
        open_files.replace_patiently(tmp_path / "new", tmp_path / "old")


def test_macos_syncs_to_the_disk_if_the_file_system_can(monkeypatch):
    calls, refusal = [], [errno.ENOTSUP]

    def full_sync(descriptor, command):
        calls.append((descriptor, command))
        if refusal:
            raise OSError(refusal.pop(), "refused")

    monkeypatch.setattr(os, "fsync", calls.append)
    assert open_files.find_sync() == calls.append
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", full_sync)
    sync = open_files.find_sync()
    sync(3)
    assert calls == [(3, 51), 3]
    sync(4)
    assert calls[2:] == [(4, 51)]
    refusal.append(errno.EIO)
    with pytest.raises(OSError, match="refused"):
        sync(5)
    assert calls[3:] == [(5, 51)]


def test_macos_limits_descriptors_to_the_systems_maximum(monkeypatch):
    limits = [(256, resource.RLIM_INFINITY)]

    def set_limit(_kind, wanted):
        if wanted[0] > 10_240:
            raise ValueError("current limit exceeds maximum limit")
        limits.append(wanted)

    monkeypatch.setattr(resource, "getrlimit", lambda _kind: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    processes.raise_descriptor_limit()
    processes.raise_descriptor_limit()
    assert limits[1:] == [(10_240, resource.RLIM_INFINITY)]
    limits[:] = [(256, 4096)]
    processes.raise_descriptor_limit()
    assert limits[1:] == [(4096, 4096)]


def test_buffers_are_sent_in_turns_until_one_does_not_fit():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        send = fallbacks.sender_in_turns(ours)
        assert send([b"one", b"", memoryview(b"two")], (), 0) == 6
        assert theirs.recv(100) == b"onetwo"
        sent = send([bytes(1 << 20), bytes(10 << 20), b"never"], (), 0)
        assert 0 < sent < 11 << 20
        with contextlib.suppress(BlockingIOError):
            while True:
                ours.send(b"x")
        with pytest.raises(BlockingIOError):
            send([b"x", b"y"], (), 0)


@pytest.mark.parametrize("polls", [True, False])
def test_connections_that_were_reset_are_found(monkeypatch, polls):
    if not polls:
        monkeypatch.delattr("select.poll")
    find = ended_connections()
    with socket.create_server(("127.0.0.1", 0)) as server:
        pairs = [(socket.create_connection(server.getsockname()), server.accept()[0]) for _ in range(3)]
        descriptors = [accepted.fileno() for _client, accepted in pairs]
        assert find(descriptors) == []
        pairs[1][0].sendall(b"x")
        pairs[2][0].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        pairs[2][0].close()
        wait_until(lambda: find(descriptors) == descriptors[2:], "the end of a connection is not found")
        assert pairs[1][1].recv(10) == b"x"
        for client, accepted in pairs:
            client.close()
            accepted.close()


# Windows lacks these calls. `sys.platform` changes after Python's own modules are loaded.
WINDOWS = """
    import fcntl, mmap, os, select, signal, sys, time, types

    # Before `selectors`, which chooses at import.
    del select.epoll, select.poll
    import asyncio, concurrent.futures, http.server, logging, multiprocessing.connection, pathlib, selectors, shutil
    import socket, sqlite3, ssl, subprocess, tempfile, uuid

    def locking(descriptor, mode, count):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise PermissionError(13, "denied") from error

    def open_file(path, access, share, security, disposition, attributes, template):
        assert (share, security, attributes, template) == (7, 0, 0x80, 0)
        creation = {1: os.O_CREAT | os.O_EXCL, 2: os.O_CREAT | os.O_TRUNC, 3: 0, 4: os.O_CREAT, 5: os.O_TRUNC}
        flags = {0x80000000: os.O_RDONLY, 0x40000000: os.O_WRONLY, 0xC0000000: os.O_RDWR}
        return os.open(path, flags[access] | creation[disposition] | cloexec, 0o666)

    def absent(_socket):
        raise AttributeError("not on Windows")

    cloexec, pair = os.O_CLOEXEC, socket.socketpair
    # Python has its own there, of TCP.
    socket.socketpair = lambda family=socket.AF_UNIX: pair(family)
    gone = {
        os: "sendfile splice eventfd eventfd_read eventfd_write pread preadv pwrite pwritev readv writev pipe2 fchmod"
            " chown fchown lchown sched_yield sched_getaffinity setpriority getpriority nice fork killpg setsid sysconf"
            " getuid geteuid getgid getegid memfd_create fdatasync posix_fadvise posix_fallocate mkfifo sync statvfs"
            " uname getloadavg wait WNOHANG O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK O_SYNC O_DSYNC",
        signal: "SIGHUP SIGCHLD SIGUSR1 SIGUSR2 SIGKILL SIGALRM SIGPIPE SIGQUIT SIGSTOP SIGCONT SIG_BLOCK SIG_UNBLOCK"
                " SIG_SETMASK pthread_sigmask pthread_kill sigwait setitimer alarm siginterrupt pause",
        socket: "AF_UNIX SO_REUSEPORT MSG_MORE MSG_DONTWAIT MSG_NOSIGNAL TCP_INFO TCP_USER_TIMEOUT TCP_DEFER_ACCEPT",
        mmap: "MAP_PRIVATE MAP_SHARED MAP_ANONYMOUS PROT_READ PROT_WRITE",
        time: "clock_gettime clock_gettime_ns CLOCK_MONOTONIC CLOCK_REALTIME CLOCK_THREAD_CPUTIME_ID tzset",
    }
    for module, names in gone.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    for name in ("sendmsg", "recvmsg", "recvmsg_into"):
        setattr(socket.socket, name, property(absent))
    for name in ("fcntl", "termios", "resource", "pwd", "grp", "syslog", "pty", "tty"):
        sys.modules[name] = None
    sys.modules["msvcrt"] = types.SimpleNamespace(
        locking=locking, LK_NBLCK=2, open_osfhandle=lambda handle, _flags: handle
    )
    sys.modules["_winapi"] = types.SimpleNamespace(CreateFile=open_file)
    assert selectors.DefaultSelector is selectors.SelectSelector
    sys.platform = "win32"
"""
SERVES = """
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
IMPORTS = """
    import importlib, pkgutil

    count, missing = 0, set()
    for name in sorted(one.name for one in pkgutil.iter_modules() if one.name.partition("_")[0] == "klamm"):
        package = importlib.import_module(name)
        for found in pkgutil.walk_packages(getattr(package, "__path__", ()), name + "."):
            if found.name.endswith("__main__"):
                continue
            try:
                importlib.import_module(found.name)
                count += 1
            except ImportError as error:
                # A part whose extra is missing says so, and why.
                missing.add((error.__cause__ or error).name)
    assert count > 800, count
    print(" ".join(sorted(missing)))
"""


def as_on_windows(program, *arguments):
    environment = {name: value for name, value in os.environ.items() if name != "KLAMM_PLATFORM"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, "-c", textwrap.dedent(WINDOWS) + textwrap.dedent(program), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_server_runs_without_the_calls_of_linux(tmp_path):
    assert as_on_windows(SERVES, tmp_path / "data") == "it runs\n"


def test_every_module_can_be_imported_without_the_calls_of_linux():
    missing = as_on_windows(IMPORTS).split()
    assert [name for name in missing if importlib.util.find_spec(name)] == [], "these are here, but for the calls"
