"""The entry point of `python -m pcmlp`."""

import sys

from pcmlp.cli import main

sys.exit(main())
