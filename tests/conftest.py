"""Fixtures that every test package uses."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.helpers.examples import examples
from tests.helpers.processor_time import ProcessorTimes, add_options

__all__: list[str] = []

_IMPLY_SLOW = {"browser", "docs", "gpu", "jax", "notebook", "nsys", "real", "tensorflow", "torch"}
_REPO = Path(__file__).resolve().parents[1]

# No test depends on how fast or busy the machine is. A test that names checks of its own to leave out replaces these.
settings.register_profile(
    "any machine", max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

os.environ["XSP_CACHE_SIZE"] = "0"  # no test leaves traces in the home of whoever runs it, nor finds any there


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds --update-golden, and what processor time is told by."""
    parser.addoption("--update-golden", action="store_true", help="write golden files anew; then read the diff")
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Takes the processor time of each test."""
    config.pluginmanager.register(ProcessorTimes(config))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts what needs a tool that a newcomer lacks into the slow tier, before -m selects; skips what is not of here."""
    system = os.environ.get("XSP_SYSTEM", sys.platform)  # played by tests.portable.system
    for item in items:
        for mark in item.iter_markers("only_on"):
            if system not in mark.args:
                item.add_marker(pytest.mark.skip(reason=mark.kwargs["reason"]))
        if any(mark.name in _IMPLY_SLOW for mark in item.iter_markers()):
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Spares the search for dead circles what was imported and collected, which outlives all tests: a tenth of them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def real_dir() -> Path:
    """The folder of real traces beside the checkout; the test is skipped where there is none."""
    folder = Path(os.environ.get("XSP_REAL", _REPO.parent / "shared" / "real"))
    if not folder.is_dir():
        pytest.skip("no real traces: set XSP_REAL to their folder")
    return folder


@pytest.fixture(scope="session")
def fixtures_dir() -> Path:
    """The project's own raw files."""
    return _REPO / "fixtures"
