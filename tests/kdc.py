"""`Kdc`: a private Kerberos KDC for tests, from the system's packages krb5-kdc and krb5-admin-server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

REALM = "KLAMM.TEST"
PROGRAMS = ("kdb5_util", "kadmin.local", "krb5kdc", "kinit")
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"

_KRB5 = """\
[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 {realm} = {{
  kdc = 127.0.0.1:{port}
 }}
"""
_KDC = """\
[kdcdefaults]
 kdc_listen = 127.0.0.1:{port}
 kdc_tcp_listen = 127.0.0.1:{port}
[realms]
 {realm} = {{
  database_name = {directory}/principal
  key_stash_file = {directory}/stash
  acl_file = {directory}/acl
 }}
"""


def missing_programs() -> list[str]:
    """Return the programs of the packages that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]


class Kdc:
    """A KDC that runs during `with Kdc(directory) as kdc:`. `environment` has the variables that its users need."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {
            "KRB5_CONFIG": str(directory / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(directory / "kdc.conf"),
            "KRB5RCACHENAME": "none:",
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Kdc:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        names = {"realm": REALM, "port": port, "directory": self.directory}
        (self.directory / "krb5.conf").write_text(_KRB5.format(**names))
        (self.directory / "kdc.conf").write_text(_KDC.format(**names))
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        with (self.directory / "kdc.log").open("wb") as log:
            self._process = subprocess.Popen(
                [self._which("krb5kdc"), "-n"], env=self._environment(), stdout=log, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return self
            except OSError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise RuntimeError((self.directory / "kdc.log").read_text()) from None
                time.sleep(0.05)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)

    def keytab(self, principal: str) -> Path:
        """Create a principal. Return the file with its keys."""
        file = self.directory / f"{principal.replace('/', '-')}.keytab"
        self._run("kadmin.local", "-q", f"addprinc -randkey {principal}")
        self._run("kadmin.local", "-q", f"ktadd -k {file} {principal}")
        return file

    def ticket(self, principal: str) -> Path:
        """Create a principal. Return the file with a ticket for it."""
        cache = self.directory / f"{principal.replace('/', '-')}.ticket"
        self._run("kinit", "-k", "-t", str(self.keytab(principal)), "-c", f"FILE:{cache}", principal)
        return cache

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._which(program), *arguments], env=self._environment(), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stdout}{done.stderr}")

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": _PATH, **self.environment}

    @staticmethod
    def _which(program: str) -> str:
        found = shutil.which(program, path=_PATH)
        assert found is not None
        return found
