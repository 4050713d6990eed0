"""The arguments of `klamm`, and the module of each subcommand."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from klamm.api.contracts import command_problem
from klamm.api.provider import ProviderKind
from klamm.compiled import IS_COMPILED
from klamm.config.arguments import CommandParser
from klamm.config.plugin_registry import PluginError, PluginRegistry, load_factory
from klamm.config.problems import ConfigError
from klamm.config.server_settings import AS_VERSIONS, LOG_LEVELS
from klamm.shared.version import __version__

EXIT_USAGE = 2
EXIT_INTERRUPTED = 128 + signal.SIGINT


def parser(only: str | None = None) -> argparse.ArgumentParser:
    """Return the parser for klamm's own subcommands, or for one of them, so that `klamm serve` starts sooner."""
    top = CommandParser(
        prog="klamm",
        description="A server framework for the Kafka wire protocol.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version = f"klamm {__version__} (compiled)" if IS_COMPILED else f"klamm {__version__}"
    top.add_argument("--version", action="version", version=version)
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    common = CommandParser(add_help=False)
    common.add_argument(
        "-p", dest="block", metavar="no:NAME", action="append", default=[], help="do not load a plugin's entry point"
    )
    settings = CommandParser(add_help=False)
    settings.add_argument("file", metavar="FILE", nargs="?", help="TOML file; without one, a broker on 127.0.0.1:9092")
    settings.add_argument(
        "--set", dest="overrides", metavar="KEY=VALUE", action="append", default=[], help="a Kafka key or a TOML path"
    )
    settings.add_argument("--bind", metavar="HOST:PORT", help="where the first listener listens; or unix:/PATH")
    settings.add_argument("--data-dir", metavar="DIR", help="where data are kept; default: a temporary directory")
    settings.add_argument(
        "--log-level", metavar="LEVEL", type=str.upper, choices=LOG_LEVELS, help="DEBUG, INFO, WARNING or ERROR"
    )
    for name in OWN_COMMANDS if only is None else (only,):
        _ADDED_BY[name](commands, common, settings)
    return top


def _add_serve(commands: Any, *parents: argparse.ArgumentParser) -> None:
    serve = commands.add_parser("serve", parents=parents, help="start a server")
    serve.add_argument(
        "--as-version",
        metavar="RELEASE",
        choices=AS_VERSIONS,
        help="offer the API versions of this release of Apache Kafka: " + ", ".join(AS_VERSIONS),
    )
    serve.add_argument("--ready-file", metavar="FILE", help="write a JSON object there once every listener answers")
    serve.add_argument(
        "--ephemeral",
        action="store_true",
        help="for tests: a free port, no waiting for members of a group, and faults, recording and time over HTTP",
    )
    serve.add_argument(
        "--secure", action="store_true", help="with --ephemeral: also a listener `secure` with TLS, SCRAM and ACLs"
    )
    serve.add_argument(
        "--seed", type=int, metavar="N", help="with --ephemeral: take ids, salts and other random numbers from a seed"
    )
    serve.add_argument(
        "--stop-at-eof", action="store_true", help="stop when standard input ends, as it does when the parent ends"
    )


def _add_check(commands: Any, *parents: argparse.ArgumentParser) -> None:
    check = commands.add_parser("check", parents=parents, help="report all problems of a file, without binding")
    check.add_argument("--strict", action="store_true", help="end with exit code 1 if there is a warning")


def _add_doctor(commands: Any, *parents: argparse.ArgumentParser) -> None:
    commands.add_parser(
        "doctor",
        parents=parents,
        help="show the address that each listener gives to clients, and check what it depends on; does not listen",
    )


def _add_diff(commands: Any, common: argparse.ArgumentParser, _settings: argparse.ArgumentParser) -> None:
    diff = commands.add_parser(
        "diff", parents=[common], help="show the changes that a reload applies, and those that need a new start"
    )
    diff.add_argument("old", metavar="OLD", help="the file of the running server, before the change")
    diff.add_argument("new", metavar="NEW", help="the changed file")


def _add_init(commands: Any, common: argparse.ArgumentParser, _settings: argparse.ArgumentParser) -> None:
    init = commands.add_parser("init", parents=[common], help="write a commented starter file")
    init.add_argument("file", metavar="FILE", nargs="?", default="klamm.toml", help="default: klamm.toml")
    init.add_argument("--tls", action="store_true", help="with a listener that is encrypted")
    init.add_argument("--scram", action="store_true", help="with a listener whose clients log in, and rules for them")
    init.add_argument("--gateway", action="store_true", help="before an Apache Kafka cluster instead of a broker")


def _add_plugins(commands: Any, *parents: argparse.ArgumentParser) -> None:
    plugins = commands.add_parser(
        "plugins",
        parents=parents,
        help="list the parts of all plugins; `plugins new NAME` writes a package to start from",
    )
    plugins.add_argument("--json", action="store_true", help="as JSON")
    plugins.add_argument("--settings", action="store_true", help="with their settings and defaults")


def _add_verify_history(commands: Any, common: argparse.ArgumentParser, _settings: argparse.ArgumentParser) -> None:
    verify = commands.add_parser(
        "verify-history",
        parents=[common],
        help="list violations of a broker's guarantees in a recorded history of clients",
    )
    verify.add_argument(
        "history", metavar="FILE", help="JSON lines, as klamm.testing.histories writes them; - for stdin"
    )
    verify.add_argument("--json", action="store_true", help="one JSON object for each anomaly")
    verify.add_argument(
        "--at-least-once", action="store_true", help="producers are not idempotent: a value may be there twice"
    )
    verify.add_argument(
        "--write-cycles",
        action="store_true",
        help="also report cycles of transactions by their writes, which Kafka allows",
    )


_ADDED_BY: Final[dict[str, Callable[[Any, argparse.ArgumentParser, argparse.ArgumentParser], None]]] = {
    "serve": _add_serve,
    "check": _add_check,
    "doctor": _add_doctor,
    "init": _add_init,
    "plugins": _add_plugins,
    "verify-history": _add_verify_history,
    "diff": _add_diff,
}
OWN_COMMANDS: Final = tuple(_ADDED_BY)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `klamm`, and return the exit code.

    2 means wrong arguments, a wrong configuration, or a plugin that fails; 130 means that the command was interrupted.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given and not given[0].startswith("-") and given[0] not in OWN_COMMANDS:
            return _plugin_command(given)
        top = parser(given[0] if given and given[0] in OWN_COMMANDS else None)
        if given[:2] == ["plugins", "new"]:
            from klamm.cli.new_plugin import run as write_package

            return write_package(given[2:])
        if given and given[0] in ("-h", "--help"):
            top.epilog = _commands_of_plugins()
        options = top.parse_args(given)
        module = importlib.import_module(f"klamm.cli.{options.command.replace('-', '_')}")
        code: int = module.run(options, PluginRegistry(_blocked(options)))
        return code
    except ConfigError as error:
        for problem in error.problems:
            print(problem, file=sys.stderr)
        return EXIT_USAGE
    except PluginError as error:
        print(f"klamm: {error}", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        # The interrupt arrived before the command could handle it, e.g. during an import.
        return EXIT_INTERRUPTED


def _blocked(options: argparse.Namespace) -> list[str]:
    blocked = []
    for text in options.block:
        if not text.startswith("no:"):
            raise PluginError(f'-p takes "no:NAME", not "{text}"')
        blocked.append(text.removeprefix("no:"))
    file = getattr(options, "file", None)
    if file is not None and options.command != "init":
        from pathlib import Path

        from klamm.config.tables import blocked_plugins

        blocked += blocked_plugins(Path(file))
    return blocked


def _blocked_by_files(arguments: Sequence[str]) -> list[str]:
    """Return the plugins that the TOML files among the arguments block. The command itself reports faults of a file."""
    from pathlib import Path

    from klamm.config.tables import blocked_plugins

    blocked: list[str] = []
    for text in arguments:
        path = Path(text.rpartition("=")[2])
        if path.suffix == ".toml" and path.is_file():
            with contextlib.suppress(ConfigError):
                blocked += blocked_plugins(path)
    return blocked


def _plugin_command(given: list[str]) -> int:
    found = PluginRegistry(_blocked_by_files(given[1:])).resolve(ProviderKind.COMMAND, given[0], OWN_COMMANDS)
    command = load_factory(found)
    problem = command_problem(command)
    code = None if problem else command(given[1:])
    if not isinstance(code, int):
        problem = problem or f"it must return its exit code, an int, not {code!r}"
        raise PluginError(f'the command "{found.provider.name}" of {found.source.distribution}: {problem}')
    return code


def _commands_of_plugins() -> str:
    """Return the list of the plugins' subcommands, in the format of argparse."""
    rows = [
        f"    {found.provider.name:<19} {found.provider.summary}"
        for found in PluginRegistry().providers(ProviderKind.COMMAND)
    ]
    return "\n".join(["commands of plugins:", *rows]) if rows else ""
