"""`python -m tests.interop.clients.worker MODULE BOOTSTRAP TOPIC GROUP`: one group member of a Python client."""

from __future__ import annotations

import sys
from importlib import import_module

if __name__ == "__main__":
    module, bootstrap, topic, group = sys.argv[1:]
    import_module(module).work(bootstrap, topic, group)
