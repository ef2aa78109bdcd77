"""`python -m xsp`: the command, of the Python that runs it.

`python -m` looks for modules in the current folder first, and the folder may be a stranger's: from here on nothing is
taken from it. The package `xsp` itself was looked for there already; `python -P -m xsp` and the command `xsp` look for
nothing there.
"""

import os
import sys


def _leave_current_folder() -> None:
    """Takes the current folder off the way, unless xsp itself is there: a checkout that is not installed."""
    first = sys.path[0]
    if sys.flags.safe_path or first == os.path.dirname(os.path.dirname(os.path.abspath(__file__))):  # noqa: PTH100, PTH120 (pathlib itself is not yet safe to import)
        return
    try:
        is_current = os.path.samefile(first or ".", ".")  # noqa: PTH121 (likewise)
    except OSError:
        return
    if is_current:
        del sys.path[0]


if __name__ == "__main__":
    _leave_current_folder()
    from xsp.cli.main import main

    sys.exit(main())
