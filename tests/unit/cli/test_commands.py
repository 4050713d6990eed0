"""Tests of the output and exit codes of `klamm` and its subcommands, except a running server."""

import importlib.metadata
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from klamm import ConnectionGate, Provider, __version__, hookimpl
from klamm.cli import main as cli_main
from klamm.compiled import IS_COMPILED
from klamm.config.plugin_registry import PluginRegistry
from klamm.server.server import StartError
from klamm.testing import EmbeddedServer

VERSION = f"klamm {__version__}{' (compiled)' if IS_COMPILED else ''}"
ECHO = '[listeners.a]\nbind = "127.0.0.1:0"\napi_set = "echo"\n'


class UnclearError(Exception):
    pass


class Torn(ConnectionGate):
    raised = UnclearError()

    def open(self, listener):
        raise self.raised

    def admit(self, address):
        return None

    def release(self, address):
        pass


def test_version_is_printed(klamm):
    assert klamm("--version") == (0, [VERSION], [])


def test_help_lists_the_subcommands(klamm):
    code, out, _ = klamm("--help")
    assert code == 0
    text = "\n".join(out)
    commands = ("serve", "check", "doctor", "init", "plugins", "audit", "certs", "metrics", "top", "users")
    assert all(f"\n    {command} " in text for command in commands)


@pytest.mark.parametrize("arguments", [(), ("--no-such",), ("serve", "--no-such"), ("check", "--log-level", "loud")])
def test_wrong_arguments_exit_with_2(klamm, arguments):
    code, out, err = klamm(*arguments)
    assert (code, out) == (2, [])
    assert err


def test_check_reports_a_valid_file(klamm):
    Path("ok.toml").write_text(ECHO)
    assert klamm("check", "ok.toml") == (0, ["ok.toml: ok (a)"], [])


OPEN = """\
[server]
data_dir = "data"
authorizer = "acl"

[listeners.guarded]
bind = "127.0.0.1:0"

[listeners.local]
bind = "127.0.0.1:0"
authorizer = "none"

[listeners.wide]
bind = "0.0.0.0:0"
authorizer = "none"
authenticator = "sasl"
proxy_protocol = "optional"
trusted_proxies = ["10.0.0.1"]

[listeners.wide.sasl]
mechanisms = ["PLAIN", "OAUTHBEARER", "EXTERNAL"]
credential_stores = ["file"]

[sasl.file]
path = "users"

[listeners.wide.sasl.OAUTHBEARER]
unsecured_development_tokens = true
allow_unverified_issuer = true
allow_unverified_audience = true
"""


def test_check_warns_of_insecure_listeners_and_strict_makes_that_an_error(klamm, tmp_path):
    Path("open.toml").write_text(OPEN)
    Path("data").mkdir(mode=0o755)
    Path("data").chmod(0o755)
    Path("users").write_text("")
    Path("users").chmod(0o644)
    code, out, err = klamm("check", "open.toml")
    assert (code, out) == (0, ["open.toml: ok (guarded, local, wide)"])
    sasl = "listeners.wide.sasl"
    assert [line.replace(f"{tmp_path}/", "") for line in err] == [
        "warning: open.toml:2:1  server.data_dir: data: other users have access (mode 0755); `chmod 700` removes it",
        "warning: open.toml:13:1  listeners.wide.bind: other machines can connect, and there is no authorizer:"
        " every client may do everything",
        "warning: open.toml:16:1  listeners.wide.proxy_protocol: if the proxy adds no header, clients can send"
        ' one of their own and so choose their address; "required" refuses connections without one',
        f"warning: open.toml:20:1  {sasl}.mechanisms: PLAIN without TLS: anyone who can read the traffic gets"
        " the client's password or token",
        f"warning: open.toml:20:1  {sasl}.mechanisms: OAUTHBEARER without TLS: anyone who can read the traffic gets"
        " the client's password or token",
        f"warning: open.toml:20:1  {sasl}.mechanisms: EXTERNAL: the transport does not verify principals, so no"
        " client can log in with it",
        f"warning: open.toml:27:1  {sasl}.OAUTHBEARER.unsecured_development_tokens: any client can be any user",
        f"warning: open.toml:28:1  {sasl}.OAUTHBEARER.allow_unverified_issuer: a token of any issuer whose key is known"
        " is accepted",
        f"warning: open.toml:29:1  {sasl}.OAUTHBEARER.allow_unverified_audience: tokens that were issued for other"
        " services are accepted",
        "warning: open.toml:24:1  sasl.file.path: users: other users have access (mode 0644); `chmod 600` removes it",
    ]
    assert klamm("check", "--strict", "open.toml")[0] == 1
    Path("sound.toml").write_text(OPEN.partition("[listeners.wide]")[0].replace('"data"', '"fresh"'))
    assert klamm("check", "--strict", "sound.toml") == (0, ["sound.toml: ok (guarded, local)"], [])


def test_an_open_listener_beside_a_guarded_one_is_a_warning_unless_declared_so(klamm):
    text = '[listeners.a]\nauthorizer = "acl"\n[listeners.b]\nbind = "127.0.0.1:0"\n'
    Path("beside.toml").write_text(text)
    code, _, (warning,) = klamm("check", "--strict", "beside.toml")
    assert code == 1
    assert warning.startswith(
        "warning: beside.toml:3:1  listeners.b.authorizer: every client may do everything here, even what"
    )
    Path("beside.toml").write_text(text + 'authorizer = "none"\n')
    assert klamm("check", "--strict", "beside.toml")[0] == 0
    Path("beside.toml").write_text(text + 'api_set = "echo"\n')
    assert klamm("check", "--strict", "beside.toml")[0] == 0, "another handler set"


def test_the_rules_of_a_cluster_require_a_gateway(klamm):
    text = '[listeners.a]\nauthorizer = "acl"\n[listeners.a.acl]\nrules = "cluster"\n'
    Path("alone.toml").write_text(text)
    code, _, (warning,) = klamm("check", "--strict", "alone.toml")
    assert code == 1
    assert warning.startswith(
        "warning: alone.toml:4:1  listeners.a.acl.rules: the listener's handler set has no cluster"
    )
    before = text.replace("[listeners.a.acl]", 'api_set = "gateway"\n[listeners.a.acl]')
    Path("before.toml").write_text(f'{before}[gateway]\nbootstrap = ["127.0.0.1:9092"]\nnode_ports = "9193-9202"\n')
    assert klamm("check", "--strict", "before.toml") == (0, ["before.toml: ok (a)"], [])


def test_the_security_example_is_valid_once_its_files_exist(klamm, tmp_path, monkeypatch):
    text = (Path(__file__).parents[3] / "examples" / "security" / "klamm.toml").read_text()
    Path("klamm.toml").write_text(text)
    assert re.findall(r"^#   klamm (.*)$", text, re.MULTILINE) == [
        "certs tls",
        "users add users alice",
        "serve klamm.toml",
    ]
    assert klamm("certs", "tls")[0] == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO("sesame\n"))
    assert klamm("users", "add", "users", "alice")[0] == 0
    code, out, err = klamm("check", "klamm.toml")
    assert (code, out) == (0, ["klamm.toml: ok (plain, tls, mutual, scram, secure)"]), err


def test_functions_may_be_in_a_module_beside_the_file(klamm, tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "made_up_directory.py").write_text("def check(user, password):\n    return False\n")
    (folder / "klamm.toml").write_text(
        '[listeners.a]\nauthenticator = "sasl"\n[listeners.a.sasl]\nmechanisms = ["PLAIN"]\n'
        'credential_stores = ["callable"]\n[listeners.a.sasl.callable]\npassword = "made_up_directory:check"\n'
    )
    code, out, _ = klamm("check", str(folder / "klamm.toml"))
    assert (code, out) == (0, [f"{folder / 'klamm.toml'}: ok (a)"])


def test_check_reports_all_problems_of_a_file(klamm):
    Path("bad.toml").write_text(ECHO + 'authenticater = "sasl"\nprocessors = 0\n')
    assert klamm("check", "bad.toml") == (
        2,
        [],
        [
            'bad.toml:4:1  listeners.a.authenticater: unknown key; did you mean "authenticator"?',
            "bad.toml:5:1  listeners.a.processors: must be at least 1, not 0",
        ],
    )


@pytest.mark.parametrize("command", ["check", "serve"])
def test_a_missing_file_is_reported(klamm, command):
    assert klamm(command, "gone.toml") == (2, [], ["gone.toml  cannot be read: No such file or directory"])


def test_serve_opens_nothing_if_the_configuration_is_invalid(klamm, tmp_path):
    data, ready = tmp_path / "data", tmp_path / "ready"
    Path("bad.toml").write_text(ECHO + "processors = 0\n")
    code, out, err = klamm("serve", "bad.toml", "--data-dir", str(data), "--ready-file", str(ready))
    assert (code, out) == (2, [])
    assert err == ["bad.toml:4:1  listeners.a.processors: must be at least 1, not 0"]
    assert not data.exists()
    assert not ready.exists()


@pytest.mark.parametrize("command", ["check", "serve"])
def test_files_that_cannot_be_used_stop_a_start_before_it_begins(klamm, tmp_path, command):
    Path("tls.toml").write_text(ECHO + 'transport = "ssl"\n[listeners.a.ssl]\ncertificate = "absent.pem"\n')
    assert klamm(command, "tls.toml", "--data-dir", str(tmp_path / "data")) == (
        2,
        [],
        ["tls.toml:6:1  listeners.a.ssl.certificate: absent.pem: No such file or directory"],
    )
    assert not (tmp_path / "data").exists()


def install(monkeypatch, plugin, name):
    """Let the commands find one more plugin."""

    class Registry(PluginRegistry):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.add(plugin, name)

    monkeypatch.setattr(cli_main, "PluginRegistry", Registry)


@pytest.mark.parametrize(
    "settings",
    [
        ["server.extensions=torn"],
        ["listeners.default.authenticator=sasl", 'listeners.default.sasl.mechanisms=["torn"]'],
    ],
    ids=["an extension", "a part of a part"],
)
def test_check_loads_the_code_of_parts_outside_listeners(klamm, monkeypatch, settings):
    class Broken:
        @hookimpl
        def klamm_extensions(self):
            yield Provider("torn", "nowhere:Torn")

        @hookimpl
        def klamm_sasl_mechanisms(self):
            yield Provider("torn", "nowhere:Torn")

    install(monkeypatch, Broken(), "klamm-torn")
    code, out, err = klamm("check", *(word for one in settings for word in ("--set", one)))
    assert (code, out) == (2, [])
    assert "of klamm-torn cannot be loaded" in err[0]


@pytest.mark.parametrize(
    ("code", "line", "cause"),
    [
        ("import nowhere\n", 1, repr(ModuleNotFoundError("No module named 'nowhere'", name="nowhere"))),
        ("\nraise RuntimeError('boo')\n", 2, "RuntimeError('boo')"),
        ("\n\ndef broken(:\n", 3, "SyntaxError('invalid syntax')"),
    ],
)
def test_code_that_cannot_be_imported_is_reported_with_its_line(klamm, monkeypatch, tmp_path, code, line, cause):
    class Broken:
        @hookimpl
        def klamm_api_sets(self):
            yield Provider("torn", "klamm_torn_code:Torn")

    file = tmp_path / "klamm_torn_code.py"
    file.write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    install(monkeypatch, Broken(), "klamm-torn")
    code, _, err = klamm("check", "--set", "listeners.default.api_set=torn")
    assert (code, err) == (2, [f'klamm: the api set "torn" of klamm-torn cannot be loaded: {cause} at {file}:{line}'])


def test_a_plugin_whose_hook_raises_is_listed_with_its_line(klamm, monkeypatch):
    class Broken:
        @hookimpl
        def klamm_api_sets(self):
            raise RuntimeError("boo")

    install(monkeypatch, Broken(), "klamm-torn")
    code, out, _ = klamm("plugins")
    assert code == 0
    assert re.fullmatch(rf"broken: .* of klamm-torn: RuntimeError\('boo'\) at {re.escape(__file__)}:\d+", out[-1])


def test_settings_that_cannot_be_imported_are_listed_with_their_line(klamm, monkeypatch, tmp_path):
    class Broken:
        @hookimpl
        def klamm_api_sets(self):
            yield Provider("torn", "klamm_torn_settings:Torn", settings="klamm_torn_settings:TornSettings")

    file = tmp_path / "klamm_torn_settings.py"
    file.write_text("raise RuntimeError('boo')\n")
    monkeypatch.syspath_prepend(tmp_path)
    install(monkeypatch, Broken(), "klamm-torn")
    code, _, err = klamm("plugins", "--settings")
    assert code == 2
    assert err[0].endswith(f"of klamm-torn cannot be loaded: RuntimeError('boo') at {file}:1")


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (RuntimeError("boo"), rf"boo \(RuntimeError at {re.escape(__file__)}:\d+\)"),
        (FileNotFoundError(2, "No such file or directory", "keys"), "keys: No such file or directory"),
        (UnclearError("the keys are missing"), "the keys are missing"),
    ],
)
def test_a_part_that_cannot_open_has_its_cause_in_one_line(monkeypatch, raised, said):
    class Plugin:
        @hookimpl
        def klamm_connection_gates(self):
            yield Provider("torn", f"{__name__}:Torn")

    monkeypatch.setattr(Torn, "raised", raised)
    with pytest.raises(StartError) as failed, EmbeddedServer(["listeners.default.gates=torn"], plugins=[Plugin()]):
        pass
    assert re.fullmatch(rf"listener default: connection gate torn of .*Torn\): {said}", str(failed.value))


@pytest.mark.parametrize("factory", [Torn, "klamm_torn", "klamm_torn:"])
def test_a_factory_that_is_no_dotted_name_is_refused(klamm, monkeypatch, factory):
    class Wrong:
        @hookimpl
        def klamm_connection_gates(self):
            yield Provider("torn", factory)

    install(monkeypatch, Wrong(), "klamm-torn")
    code, _, err = klamm("check", "--set", "listeners.default.gates=torn")
    assert code == 2
    assert 'a Provider names its code as "package.module:Name", not ' in err[0]


def test_check_loads_the_code_of_every_part(klamm, monkeypatch):
    class Broken:
        @hookimpl
        def klamm_api_sets(self):
            yield Provider("torn", "nowhere:Torn")

    install(monkeypatch, Broken(), "klamm-torn")
    code, _, err = klamm("check", "--set", "listeners.default.api_set=torn")
    assert code == 2
    assert err == [
        'klamm: the api set "torn" of klamm-torn cannot be loaded: '
        + repr(ModuleNotFoundError("No module named 'nowhere'", name="nowhere"))
    ]


def test_a_plugin_can_be_blocked_by_argument_and_by_file(klamm):
    code, _, err = klamm("check", "-p", "no:echo", "--set", "listeners.default.api_set=echo")
    assert code == 2
    assert 'unknown api set "echo"' in err[0]
    assert "blocked: echo" in err[0]
    Path("block.toml").write_text('[plugins]\nblock = ["echo"]\n' + ECHO)
    code, _, err = klamm("check", "block.toml")
    assert code == 2
    assert "blocked: echo" in err[0]


class Greeting:
    """A plugin with the command `greet`, which returns its own number."""

    def __init__(self, code):
        self.code = code

    @hookimpl
    def klamm_commands(self):
        yield Provider("greet", f"{__name__}:greet_{self.code}")


def greet_3(arguments):
    return 3


def greet_4(arguments):
    return 4


def test_a_plugins_command_respects_the_plugins_that_its_file_blocks(klamm, monkeypatch):
    class Registry(PluginRegistry):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.add(Greeting(3), "klamm-three")
            self.add(Greeting(4), "klamm-four")

    monkeypatch.setattr(cli_main, "PluginRegistry", Registry)
    Path("own.toml").touch()
    assert "block one of them" in klamm("greet", "own.toml")[2][0]
    for left_out, code in (("three", 4), ("four", 3)):
        Path("own.toml").write_text(f'[plugins]\nblock = ["command:greet@klamm-{left_out}"]\n')
        assert klamm("greet", "--file=own.toml") == klamm("greet", "own.toml") == (code, [], [])
    Path("own.toml").write_text("no TOML")
    assert "block one of them" in klamm("greet", "own.toml")[2][0]


def test_plugins_lists_blocked_plugins_also_as_json(klamm):
    part = "sasl_mechanism:PLAIN@klamm"
    Path("block.toml").write_text(f'[plugins]\nblock = ["echo", "{part}"]\n[listeners.default]\nbind="127.0.0.1:0"\n')
    code, out, _ = klamm("plugins", "block.toml", "--json")
    rows = json.loads("\n".join(out))
    assert code == 0
    assert [(row["kind"], row["name"]) for row in rows if row["blocked"]] == [
        ("sasl mechanism", "PLAIN"),
        ("plugin", "echo"),
    ]
    _, out, _ = klamm("plugins", "block.toml")
    assert [line for line in out if line.startswith("blocked")] == [
        "blocked: plugin echo",
        "blocked: sasl mechanism PLAIN of klamm",
    ]


def test_the_option_p_accepts_only_no_and_a_name(klamm):
    assert klamm("check", "-p", "echo") == (2, [], ['klamm: -p takes "no:NAME", not "echo"'])


def test_without_the_plugin_of_a_default_part_the_setting_is_required(klamm):
    code, _, (problem,) = klamm("check", "-p", "no:plaintext", "--set", "listeners.default.api_set=echo")
    assert code == 2
    assert (
        "listeners.default.transport: no transport is the default; name one (known: ssl); blocked: plaintext" in problem
    )


def test_plugins_lists_every_provider_with_its_origin(klamm):
    code, out, err = klamm("plugins")
    assert (code, err) == (0, [])
    version = importlib.metadata.version("klamm")
    rows = [re.split(r"  +", line) for line in out]
    assert rows[0] == ["kind", "name", "version", "distribution", "summary"]
    assert ["transport", "plaintext", version, "klamm", "unchanged bytes over TCP"] in rows
    assert {row[1] for row in rows if row[0] == "api set"} >= {"broker", "echo"}


def test_plugins_as_json_has_settings_and_who_uses_what(klamm):
    Path("two.toml").write_text(ECHO + 'gates = ["connection_quota"]\n')
    code, out, _ = klamm("plugins", "two.toml", "--json")
    assert code == 0
    rows = {(row["kind"], row["name"]): row for row in json.loads("\n".join(out))}
    quota = rows["connection gate", "connection_quota"]
    assert (quota["listeners"], quota["distribution"]) == (["a"], "klamm")
    assert [setting["name"] for setting in quota["settings"]][:2] == ["max_connections_per_ip", "overrides"]
    assert quota["settings"][0]["default"] == 2_147_483_647
    assert (rows["api set", "echo"]["listeners"], rows["api set", "broker"]["listeners"]) == (["a"], [])


def test_plugins_command_lists_settings(klamm):
    code, out, _ = klamm("plugins", "--settings")
    assert code == 0
    assert any(
        line.startswith("    max_connections_per_ip = 2147483647  # Maximum connections of one address") for line in out
    )


def test_a_plugin_may_add_a_subcommand(klamm, monkeypatch):
    install(monkeypatch, sys.modules[__name__], "klamm-shout")
    assert klamm("shout", "loud", "--now") == (3, ["loud --now"], [])
    code, out, err = klamm("shuot")
    assert (code, out) == (2, [])
    assert err[0].startswith(
        'klamm: unknown command "shuot"; did you mean "shout"? (known: serve, check, doctor, init, plugins, '
    )


@hookimpl
def klamm_commands():
    yield Provider("shout", f"{__name__}:shout")


def shout(arguments):
    print(*arguments)
    return 3


def test_the_module_runs_as_a_program():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys, runpy; sys.path[:0] = {sys.path!r}; sys.argv = ['klamm', '--version'];"
            " runpy.run_module('klamm', run_name='__main__')",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, f"{VERSION}\n")


def test_a_start_imports_no_heavy_modules():
    script = "import klamm.cli.main, klamm.cli.serve, klamm.server.serving; print(sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}; {script}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    heavy = {"asyncio", "pydantic", "sqlite3", "ssl", "hypothesis", "pytest", "unittest", "multiprocessing"}
    assert heavy.isdisjoint(eval(done.stdout))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["serve", "--data-dri", "x"], 'klamm serve: error: unknown argument --data-dri; did you mean "--data-dir"?'),
        (["check", "--stirct=1"], 'klamm check: error: unknown argument --stirct=1; did you mean "--strict"?'),
        (["serve", "a.toml", "b.toml"], "klamm serve: error: unknown argument b.toml"),
    ],
)
def test_an_unknown_argument_is_refused_by_its_subcommand(klamm, arguments, complaint):
    code, _, err = klamm(*arguments)
    assert (code, err[-1]) == (2, complaint)
    assert err[0].startswith(f"usage: klamm {arguments[0]} ")


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["servee"], "serve"),
        (["audit", "repor"], "report"),
        (["audit", "ship", "--lak", "lake", "--mastre", "yarn"], "--master"),
        (["users", "ad"], "add"),
        (["nodes", "ready", "lis"], "list"),
    ],
)
def test_every_command_suggests_the_intended_argument(klamm, arguments, meant):
    code, _, err = klamm(*arguments)
    assert code == 2
    assert f'; did you mean "{meant}"?' in err[-1]


def test_an_interrupt_during_the_imports_leaves_no_traceback(klamm, monkeypatch, tmp_path):
    (tmp_path / "klamm_slow.py").write_text("raise KeyboardInterrupt")
    monkeypatch.syspath_prepend(tmp_path)

    class Slow:
        @hookimpl
        def klamm_commands(self):
            yield Provider("slow", "klamm_slow:main")

    install(monkeypatch, Slow(), "klamm-slow")
    assert klamm("slow") == (130, [], [])


def test_a_data_directory_that_is_a_file_is_refused(klamm):
    Path("data").touch(mode=0o600)
    code, _, err = klamm("serve", "--data-dir", "data", "--bind", "127.0.0.1:0")
    assert code == 1
    assert err[-1].endswith("data: is not a directory")
