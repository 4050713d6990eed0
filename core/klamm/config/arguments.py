"""The parser of a command's arguments. For an unknown argument it suggests a similar one."""

from __future__ import annotations

import argparse
from typing import Any

from klamm.config.problems import did_you_mean


class CommandParser(argparse.ArgumentParser):
    """An ArgumentParser that suggests a similar argument, subcommand or choice for an unknown one.

    It exits with an error for an unknown argument of a subcommand too, which argparse leaves to the program.
    """

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            first = unknown[0]
            meant = did_you_mean(first.partition("=")[0], self._option_string_actions) if first[0:1] == "-" else ""
            self.error(f"unknown argument {first}{meant}")
        return options, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        known = [str(choice) for choice in action.choices or ()]
        if known and isinstance(value, str) and value not in known:
            meant = did_you_mean(value, known)
            raise argparse.ArgumentError(action, f'must be one of {", ".join(known)}, not "{value}"{meant}')
        super()._check_value(action, value)
