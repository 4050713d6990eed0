"""From a TOML file to checked settings and a plan of the server; every problem with its file, line and key."""

from klamm.config.problems import ConfigError, Problem
from klamm.config.setting import SettingSpec, setting, specs_of

__all__ = ["ConfigError", "Problem", "SettingSpec", "setting", "specs_of"]
