"""pytest's plugin: `def test_speed(xsp_capture): xsp_capture(lambda: model(x))` fails where that became slower.

It is imported by every pytest where xsp is installed, so it imports nothing of ours before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xsp.gating.gate import Judgement

__all__ = ["Capture"]

_GROUP = "xsp", "performance gate of xsp"
_CAPTURES, _STEPS = 5, 20
Recorder = Callable[..., list[Path]]


class Capture:
    """Holds regions of a test against its baseline."""

    def __init__(self, config: pytest.Config, test: str, folder: Path, recorder: Recorder) -> None:
        self._config = config
        self._test = test
        self._folder = folder
        self._recorder = recorder

    def __call__(
        self,
        region: Callable[[], object],
        *,
        name: str = "",
        captures: int = _CAPTURES,
        steps: int = _STEPS,
        fail_on: Sequence[str] = (),
        fail_on_inconclusive: bool | None = None,
    ) -> Judgement | None:
        """Captures calls of the region and fails the test where rules on them are broken; None: a baseline was stored.

        Args:
            region: What to time, called without arguments.
            name: Tells several regions of one test apart.
            captures: Runs of the profiler; several tell noise between runs from a change.
            steps: Calls of the region in each.
            fail_on: Rules as `xsp compare --fail-on` takes them, in place of those of the command line.
            fail_on_inconclusive: Whether a rule that noise leaves open fails; None: as the command line says.
        """
        from xsp.gating.gate import folder_of, keep, stored_captures  # noqa: PLC0415 (see above)

        if store := self._config.getoption("--xsp-history"):
            return self._by_history(str(store), region, name, captures, steps, fail_on, fail_on_inconclusive)
        baseline = folder_of(self._baselines(), f"{self._test}::{name}" if name else self._test)
        updates = bool(self._config.getoption("--xsp-update-baseline"))
        before = stored_captures(baseline)
        if not updates and not before:
            pytest.fail(f"there is no baseline in {baseline}: run once with --xsp-update-baseline", pytrace=False)
        folder = self._folder / baseline.name
        if folder.exists():
            pytest.fail("several regions of one test need names: xsp_capture(region, name=...)", pytrace=False)
        folder.mkdir()
        after = self._record(region, folder, captures, steps)
        if updates:
            keep(after, baseline)
            return None
        rules = list(fail_on) or self._config.getoption("--xsp-fail-on")
        return self._judge(before, after, rules, fail_on_inconclusive)

    def _by_history(
        self,
        store: str,
        region: Callable[[], object],
        name: str,
        captures: int,
        steps: int,
        fail_on: Sequence[str],
        on_inconclusive: bool | None,
    ) -> Judgement:
        """Holds the region against the history of the test; with --xsp-update-baseline it is added to it as well."""
        from xsp.gating.gate import DEFAULT_RULE, folder_of, judge_by_history  # noqa: PLC0415 (imports polars)
        from xsp_model import XspError  # noqa: PLC0415

        test = f"{self._test}::{name}" if name else self._test
        folder = self._folder / folder_of(self._folder, test).name
        folder.mkdir()
        files = self._record(region, folder, captures, steps)
        rules = list(fail_on) or self._config.getoption("--xsp-fail-on") or [DEFAULT_RULE]
        adds = bool(self._config.getoption("--xsp-update-baseline"))
        try:
            judgement = judge_by_history(store, files, test, rules, adds=adds)
        except XspError as error:
            pytest.fail(str(error), pytrace=False)
        return self._fail_if(judgement, on_inconclusive)

    def _baselines(self) -> Path:
        return self._config.rootpath / str(self._config.getoption("--xsp-baselines"))

    def _record(self, region: Callable[[], object], folder: Path, captures: int, steps: int) -> list[Path]:
        try:
            return self._recorder(region, folder, captures=captures, steps=steps)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            return pytest.fail("xsp_capture records with torch.profiler, and torch is not installed", pytrace=False)

    def _judge(
        self, before: Sequence[Path], after: Sequence[Path], rules: Sequence[str], on_inconclusive: bool | None
    ) -> Judgement:
        from xsp.gating.gate import DEFAULT_RULE, judge_captures, open_captures  # noqa: PLC0415 (imports polars)
        from xsp_model import XspError  # noqa: PLC0415

        try:
            judgement = judge_captures(open_captures(before), open_captures(after), rules or [DEFAULT_RULE])
        except XspError as error:
            pytest.fail(str(error), pytrace=False)
        return self._fail_if(judgement, on_inconclusive)

    def _fail_if(self, judgement: Judgement, on_inconclusive: bool | None) -> Judgement:
        """The judgement, where it lets the test pass."""
        from xsp.gating.gate import Verdict  # noqa: PLC0415

        if on_inconclusive is None:
            on_inconclusive = bool(self._config.getoption("--xsp-fail-on-inconclusive"))
        is_open = judgement.verdict is Verdict.INCONCLUSIVE
        if judgement.verdict is Verdict.REGRESSED or (is_open and on_inconclusive):
            pytest.fail(f"xsp: {judgement.verdict}\n{judgement.text}", pytrace=False)
        return judgement


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the gate."""
    group = parser.getgroup(*_GROUP)
    option: Any = group.addoption
    option("--xsp-baselines", metavar="DIR", default="xsp-baselines",
           help="Where baselines of xsp_capture are kept; relative to the root of the tests.")  # fmt: skip
    option("--xsp-update-baseline", action="store_true", help="Store what xsp_capture records as the baseline.")
    option("--xsp-history", metavar="STORE",
           help="A store of xsp history to hold regions against, in place of baselines.")  # fmt: skip
    option("--xsp-fail-on", metavar="RULE", action="append", default=[],
           help="A rule of xsp compare; without one 'model.latency > +3%%'. May be repeated.")  # fmt: skip
    option("--xsp-fail-on-inconclusive", action="store_true", help="Fail, too, where noise leaves a rule open.")


@pytest.fixture
def xsp_recorder() -> Recorder:
    """What records: torch.profiler on the CPU. Override it to capture otherwise, into files that xsp reads.

    It is called as `recorder(region, folder, captures=5, steps=20)` and gives the files.
    """
    from xsp.gating.gate import record  # noqa: PLC0415

    return record


@pytest.fixture
def xsp_capture(request: pytest.FixtureRequest, tmp_path: Path, xsp_recorder: Recorder) -> Capture:
    """Call it with a region: the test fails where that became slower than its baseline."""
    return Capture(request.config, request.node.nodeid, tmp_path, xsp_recorder)
