"""Which packages are installed: those of the checkout by their names, and `runners/` as `xsp_runners`."""

from setuptools import find_packages, setup

_PACKAGES = find_packages(include=["xsp_model*", "xsp_ingest*", "xsp_analyze*", "xsp", "xsp.*"])

# `runners` would be a top-level package in people's environments, where their own may be called so.
setup(packages=[*_PACKAGES, "xsp_runners"], package_dir={"xsp_runners": "runners"})
