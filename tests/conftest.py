"""Fixtures that every test package uses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

__all__: list[str] = []

_REPO = Path(__file__).resolve().parents[1]

# No test depends on how fast or busy the machine is. A test that names checks of its own to leave out replaces these.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

os.environ["XSP_CACHE_SIZE"] = "0"  # no test leaves traces in the home of whoever runs it, nor finds any there


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds --update-golden."""
    parser.addoption("--update-golden", action="store_true", help="write golden files anew; then read the diff")


@pytest.fixture(scope="session")
def real_dir() -> Path:
    """The folder of real traces beside the checkout; the test is skipped where there is none."""
    found = Path(os.environ.get("XSP_REAL", _REPO.parent / "shared" / "real"))
    if not found.is_dir():
        pytest.skip("no real traces: set XSP_REAL to their folder")
    return found


@pytest.fixture(scope="session")
def fixtures_dir() -> Path:
    """The project's own raw files."""
    return _REPO / "fixtures"
