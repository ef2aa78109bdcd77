"""`python -m xsp`: the command, of the Python that runs it."""

import sys

from xsp.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
