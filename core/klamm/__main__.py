"""The command `klamm`, started with `python -m klamm`."""

import sys

from klamm.cli.main import main

sys.exit(main())
