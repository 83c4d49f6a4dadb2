"""`python -m fulmen.cli` is the `fulmen` command."""

import sys

from fulmen.cli.main import main

sys.exit(main())
