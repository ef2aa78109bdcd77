"""Run first by every file here that can be started by its path: makes this folder the package `xsp_runners`.

The folder is installed under that name, is called `runners` in the checkout and may be copied under any other, so its
modules import each other as `xsp_runners.NAME`, and a workload finds its own `runners`. Python would look for modules
beside a file that it runs, and take our cupti.py or steps.py for what a workload imports: that entry goes.
"""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

__all__ = ["PACKAGE", "register"]

PACKAGE = "xsp_runners"


def register(folder: Path) -> None:
    """Has `import xsp_runners` find this folder, also where another one is installed."""
    if sys.path and sys.path[0] and Path(sys.path[0]).resolve().is_relative_to(folder):
        del sys.path[0]
    if PACKAGE in sys.modules:
        return
    spec = spec_from_file_location(PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)])
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder} is no package")
    module = module_from_spec(spec)
    sys.modules[PACKAGE] = module
    spec.loader.exec_module(module)


if __name__ == "<run_path>":  # as runpy calls it
    register(Path(__file__).resolve().parent)
