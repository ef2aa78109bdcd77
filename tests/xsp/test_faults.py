"""Whatever fails, inputs stay, outputs are whole or not there, and answers are right or not given.

A state machine over convert, batch, cache and merge: disks that are full or fail at any event, inputs that get shorter
while they are read, processes that are killed.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.helpers.batches import trace_of
from tests.helpers.faults import Fault, Forker, Kind, injected
from tests.helpers.run_sets import merged, write_run
from xsp.batch.unit import Settings, Status, Unit
from xsp.batch.work import process
from xsp.cache.cache import LIMIT_VARIABLE, Cache
from xsp.cli.main import main
from xsp.opening import load
from xsp.reading import Reading
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import XspError, bundle
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from xsp_model import Trace

_NAMES = ("one.json", "two.json", "table.csv")
_FAULTS = st.builds(Fault, st.sampled_from([kind for kind in Kind if kind is not Kind.KILLED]), st.integers(1, 12))
_TABLE = (
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),"
    "Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name\n"
)
_ROW = "{start},{duration},{number},1,1,1,128,1,1,32,0.000,0.000,,,,,GPU (0),1,,7,gemm\n"


@cache
def _content(name: str, scale: int) -> bytes:
    rows = [_ROW.format(start=1_000 * n, duration=100 * scale, number=n) for n in range(1, 9)]
    return (_TABLE + "".join(rows)).encode() if name.endswith(".csv") else trace_of(scale).to_bytes()


@cache
def _expected(name: str, content: bytes) -> str:
    """The answer for an input of this name and content, worked out without a fault."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(content)
        return _answer(convert([path], Options()))


@cache
def _merged() -> str:
    with tempfile.TemporaryDirectory() as folder:
        _write_set(Path(folder, "set"))
        return _answer(merged(Path(folder, "set")))


def _write_set(folder: Path) -> None:
    write_run(folder / "MLG", "MLG", trace_of(3), batch_size=1, device={"name": "H100"})


def _answer(trace: Trace) -> str:
    """All that the trace holds."""
    return "".join(trace.frame(name).write_json() for name in TABLES)


class _Faults(RuleBasedStateMachine):
    """`expected` holds the answer of each input as it is now, worked out without a fault."""

    forker: ClassVar[Forker]

    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.inputs, self.out = self.root / "in", self.root / "out"
        self.inputs.mkdir()
        self.out.mkdir()
        self.contents: dict[Path, bytes] = {}
        self.expected: dict[str, str] = {}
        self.may_be_left = False
        for number, name in enumerate(_NAMES):
            self._write(name, number + 1)
        _write_set(self.root / "set")
        self._remember(self.root / "set")
        self.expected["set"] = _merged()

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    def _write(self, name: str, scale: int) -> None:
        path = self.inputs / name
        path.write_bytes(_content(name, scale))
        self._remember(self.inputs)
        self.expected[name] = _expected(name, _content(name, scale))

    def _remember(self, folder: Path) -> None:
        self.contents |= {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}

    def _run(self, *command: object) -> tuple[int, str]:
        """The command's status, and the sentence where it failed."""
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            status = main(list(map(str, command)))
        return status, errors.getvalue() if status else ""

    def _restore(self, path: Path) -> None:
        if path.read_bytes() != self.contents[path]:
            path.write_bytes(self.contents[path])

    @rule(name=st.sampled_from(_NAMES), scale=st.integers(1, 3))
    def change(self, name: str, scale: int) -> None:
        self._write(name, scale)

    @rule(name=st.sampled_from(_NAMES), fault=_FAULTS)
    def convert(self, name: str, fault: Fault) -> None:
        self._written(name, self.inputs / name, "convert", fault)

    @rule(fault=_FAULTS)
    def merge(self, fault: Fault) -> None:
        self._written("set", self.root / "set" / "MLG" / "trace.json.gz", "merge", fault)

    def _written(self, name: str, shortened: Path, command: str, fault: Fault) -> None:
        source = shortened if command == "convert" else self.root / "set"
        output = self.out / f"{name}.xsp"
        before = _answer(bundle.read(output)) if output.exists() else None
        with injected(fault, self.root, shortened):
            status, sentence = self._run(command, source, "-o", output)
        answers = {self.expected[name]}
        if fault.kind is Kind.SHORTER and status == 0:  # what is left of it is one, too, or the ledger says so
            with contextlib.suppress(XspError):
                is_one = command == "convert"
                answers.add(_expected(name, shortened.read_bytes()) if is_one else _answer(merged(source)))
        self._restore(shortened)
        if status:
            assert sentence.startswith("error: "), sentence
            assert sentence.count("\n") == 1, sentence
            answers = {before} if before else {self.expected[name]}
        if status == 0 or output.exists():
            assert _answer(bundle.read(output)) in answers
        assert status in {0, 2}
        assert status == 0 or fault.kind is not Kind.NOTHING

    @rule(name=st.sampled_from(_NAMES), fault=_FAULTS)
    def batch(self, name: str, fault: Fault) -> None:
        unit = Unit(Path(name).stem, (str(self.inputs / name),))
        with injected(fault, self.root, self.inputs / name):
            outcome = process(unit, Settings(str(self.out / "batch"), reports=False))
        shorter = fault.kind is Kind.SHORTER
        self._restore(self.inputs / name)
        assert outcome.details == ""
        if outcome.status is Status.FAILED:
            assert fault.kind is not Kind.NOTHING
            assert "\n" not in outcome.reason
        elif not shorter:
            assert _answer(bundle.read(self.out / "batch" / "traces" / unit.name / "trace.xsp")) == self.expected[name]

    @rule(name=st.sampled_from(_NAMES), fault=_FAULTS)
    def opened(self, name: str, fault: Fault) -> None:
        path, cache = self.inputs / name, Cache(self.root / "cache", worth_bytes=0)
        try:
            with injected(fault, self.root, path):
                answer = _answer(load([str(path)], Reading(), lambda _: None, cache=cache))
        except (XspError, OSError):
            assert fault.kind is not Kind.NOTHING
            answer = None
        shorter = fault.kind is Kind.SHORTER
        self._restore(path)
        assert answer in {None, self.expected[name]} or shorter
        assert _answer(load([str(path)], Reading(), lambda _: None, cache=cache)) == self.expected[name]

    @rule(number=st.integers(0, 100), share=st.floats(0, 0.9))
    def damage_cache(self, number: int, share: float) -> None:
        files = sorted(file for file in (self.root / "cache").rglob("*") if file.is_file())
        if files:
            file = files[number % len(files)]
            os.truncate(file, int(file.stat().st_size * share))

    @rule(name=st.sampled_from(_NAMES), number=st.integers(1, 30))
    def kill(self, name: str, number: int) -> None:
        command = ["convert", str(self.inputs / name), "-o", str(self.out / f"{name}.xsp")]
        assert self.forker.status(command, number, self.root) in {0, -signal.SIGKILL}
        self.may_be_left = True

    @invariant()
    def inputs_stay(self) -> None:
        for file, content in getattr(self, "contents", {}).items():
            assert file.read_bytes() == content

    @invariant()
    def outputs_are_whole(self) -> None:
        if not hasattr(self, "out"):
            return
        for output in self.out.glob("*"):
            if output.name.startswith("."):
                assert self.may_be_left, output.name
            elif output.suffix == ".xsp":
                bundle.read(output)


@pytest.mark.slow
def test_faults_lose_no_input_leave_no_half_output_and_give_no_wrong_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "1G")
    runs, steps = {"all": (60, 20), None: (8, 8)}.get(os.environ.get("XSP_THOROUGH"), (15, 20))
    _Faults.forker = Forker()
    _Faults.TestCase.settings = settings(max_examples=runs, stateful_step_count=steps, deadline=None)
    try:
        _Faults.TestCase("runTest").runTest()
    finally:
        _Faults.forker.end()
