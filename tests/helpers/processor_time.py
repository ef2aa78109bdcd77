"""Processor time of tests and of the processes they start: unlike seconds it does not tell how busy a machine is."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

__all__ = ["ProcessorTimes", "add_options", "over_budget"]

_KEY = "processor_s"


def add_options(parser: pytest.Parser) -> None:
    """Adds --processor-times and the budgets of the tiers."""
    parser.addoption(
        "--processor-times", type=int, default=0, metavar="N", help="list the N tests with most processor time"
    )
    parser.addini("processor_budgets", "lines `tier: seconds`; a tier that takes more is named", type="linelist")


class ProcessorTimes:
    """The plugin: workers of xdist write a phase's time into its report, the process that prints adds them up."""

    def __init__(self, config: pytest.Config) -> None:
        self._rows: int = config.getoption("--processor-times")
        self._budgets_s = {
            tier.strip(): float(seconds)
            for tier, _, seconds in (line.partition(":") for line in config.getini("processor_budgets"))
        }
        self._test_s: dict[tuple[str, str], float] = defaultdict(float)  # by tier and test
        self._tier_s: dict[str, float] = defaultdict(float)
        self._last_s = _processor_s()

    def pytest_collection_finish(self) -> None:
        """Charges no test with the imports of all."""
        self._last_s = _processor_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Notes what a phase took, module fixtures with the first test that uses them."""
        now_s = _processor_s()
        report = yield
        report.user_properties.append((_KEY, now_s - self._last_s))
        self._last_s = _processor_s()
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds a phase to its test and its tier."""
        took_s = sum(float(str(value)) for key, value in report.user_properties if key == _KEY)
        tier = "slow" if "slow" in report.keywords else "quick"
        self._test_s[tier, report.nodeid] += took_s
        self._tier_s[tier] += took_s

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Lists the slowest tests, where asked for, and says which tier outgrew its budget."""
        if self._rows and self._test_s:
            terminalreporter.section(f"the {self._rows} tests with most processor time")
            for (tier, test), took_s in sorted(self._test_s.items(), key=lambda item: -item[1])[: self._rows]:
                terminalreporter.write_line(f"{took_s:8.1f} s  {tier:5}  {test}")
            for tier, took_s in sorted(self._tier_s.items()):
                terminalreporter.write_line(f"{took_s:8.1f} s  in all: tier {tier}")
        for line in over_budget(self._tier_s, self._budgets_s):
            terminalreporter.write_line(line, yellow=True)


def over_budget(tier_s: Mapping[str, float], budgets_s: Mapping[str, float]) -> list[str]:
    """A warning for each tier that took more than its budget."""
    return [
        f"WARNING: tier {tier} took {took_s:.0f} s of processor time, its budget is {budgets_s[tier]:.0f} s"
        for tier, took_s in sorted(tier_s.items())
        if tier in budgets_s and took_s > budgets_s[tier]
    ]


def _processor_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
