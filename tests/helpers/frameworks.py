"""The Python that has a framework: this one, or the one that a variable of the environment names."""

from __future__ import annotations

import importlib.util
import os
import sys

import pytest

__all__ = ["python_with"]

_VARIABLES = {"tensorflow": "XSP_TENSORFLOW_PYTHON", "jax": "XSP_JAX_PYTHON"}


def python_with(framework: str) -> str:
    """The interpreter with `tensorflow` or `jax`; the test is skipped where there is none."""
    if named := os.environ.get(_VARIABLES[framework]):
        return named
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"no Python with {framework}: install it, or set {_VARIABLES[framework]}")
    return sys.executable
