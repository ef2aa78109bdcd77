"""Which packages are installed, for which Pythons, and the commit that a wheel or an sdist was made of."""

import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

_ROOT = Path(__file__).resolve().parent
_PACKAGES = find_packages(include=["xsp_model*", "xsp_ingest*", "xsp_analyze*", "xsp", "xsp.*"])

if sysconfig.get_config_var("Py_GIL_DISABLED"):
    # polars and msgspec have no wheels for them, and nobody has run xsp on one.
    sys.exit("xsp does not run on free-threaded builds of Python: take the ordinary build of the same version.")


def _write_commit(target: Path) -> None:
    """Says the commit there, where `git archive` has not done so already and git knows it."""
    if (_ROOT / ".git").exists() and target.parent.is_dir():
        describe = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        try:
            done = subprocess.run(describe, cwd=_ROOT, capture_output=True, text=True, check=True)  # noqa: S603 (git)
        except (OSError, subprocess.SubprocessError):
            return
        target.unlink(missing_ok=True)  # an sdist links its files to those of the checkout
        target.write_text(done.stdout, encoding="ascii")


class _BuildPackages(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            _write_commit(Path(self.build_lib, "xsp", "COMMIT"))


class _SourceArchive(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        _write_commit(Path(base_dir, "xsp", "COMMIT"))


# `runners` would be a top-level package in people's environments, where their own may be called so.
setup(
    packages=[*_PACKAGES, "xsp_runners", *(f"xsp_runners.{name}" for name in find_packages("runners"))],
    package_dir={"xsp_runners": "runners"},
    cmdclass={"build_py": _BuildPackages, "sdist": _SourceArchive},
)
