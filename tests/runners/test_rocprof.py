"""The rocprofv3 runner: its commands, what it makes of what the tool leaves, and its lists of counters."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import xsp
from tests.helpers.synth_rocpd import rocpd
from tests.helpers.synth_rocprof import RocprofRun
from tests.runners.fake_tool import write_tool
from xsp_analyze.merge.merge import merge
from xsp_ingest.convert import convert
from xsp_ingest.formats.rocprofv3.records import AMD
from xsp_ingest.ingester import Options
from xsp_ingest.run_set import read_single
from xsp_model import bundle
from xsp_runners import rocprof as runner
from xsp_runners.rocprof import ASSUMED, Rocprof, counter_command, trace_command
from xsp_runners.run_folder import RunnerError
from xsp_runners.tools.counter_lists import chip_of, chips, groups_of_chip

__all__: list[str] = []

_HELP = """usage: rocprofv3 [options] -- <application> [application options]
  -f {csv,json,pftrace,otf2,rocpd} [{csv,json,pftrace,otf2,rocpd} ...], --output-format {csv,json,pftrace,otf2,rocpd}
  --hip-trace [BOOL]  Combination of --hip-runtime-trace and --hip-compiler-trace
  --marker-trace [BOOL]
  --kernel-trace [BOOL]
  --rccl-trace [BOOL]
  --pmc [PMC ...]
"""
_OLD = Rocprof("rocprofv3", frozenset({"--kernel-trace", "--marker-trace", "--pmc"}), frozenset({"csv", "json"}))


def _run(*, counted: bool = False) -> RocprofRun:
    run = RocprofRun()
    run.call(500, 90_000, "nn.Module: Linear_0", 1, "MARKER_CORE_RANGE_API")
    run.launch(1_000, "gemm", 2, (20_000, 30_000))
    if counted:
        run.count(1, FETCH_SIZE=2.0)
    return run


def _tool(folder: Path, *, content: bytes = b"", ending: str = ".json", status: int = 0) -> Rocprof:
    """A rocprofv3 that parses its command line as the real one does, runs the program and writes this content."""
    (folder / "content").write_bytes(content)
    body = f"""
import argparse, subprocess
if "--help" in arguments:
    print({_HELP!r})
    sys.exit()
at = arguments.index("--")
parser = argparse.ArgumentParser(allow_abbrev=False)
for name in ("kernel", "memory-copy", "hip", "hip-runtime", "marker", "rccl", "hsa"):
    parser.add_argument(f"--{{name}}-trace", nargs="?", const=True)
parser.add_argument("--pmc", nargs="*")
parser.add_argument("-f", "--output-format", nargs="+", choices=("csv", "json", "pftrace", "otf2", "rocpd"))
parser.add_argument("-d", "--output-directory")
parser.add_argument("-o", "--output-file")
args = parser.parse_args(arguments[:at])
subprocess.run(arguments[at + 1:], check=True)
out = pathlib.Path(args.output_directory)
out.mkdir(parents=True, exist_ok=True)
content = pathlib.Path({str(folder / "content")!r}).read_bytes()
if content:
    (out / (args.output_file.replace("%pid%", "908") + "_results{ending}")).write_bytes(content)
sys.exit({status})
"""
    return Rocprof.locate(write_tool(folder / "rocprofv3", body))


def test_the_command_records_kernels_calls_and_ranges() -> None:
    assert trace_command(["python", "train.py"], Path("out")) == [
        *(
            "rocprofv3",
            "--kernel-trace",
            "--memory-copy-trace",
            "--hip-runtime-trace",
            "--marker-trace",
            "--rccl-trace",
        ),
        *("--output-format", "json", "--output-directory", "out", "--output-file", "trace_%pid%"),
        *("--", "python", "train.py"),
    ]


def test_counters_are_asked_for_beside_the_trace_that_says_whose_they_are() -> None:
    command = counter_command(["true"], Path("out"), ["FETCH_SIZE", "SQ_WAVES"], output_format="rocpd")
    assert command[1:5] == ["--pmc", "FETCH_SIZE", "SQ_WAVES", "--kernel-trace"]
    assert "--marker-trace" in command
    assert command[command.index("--output-format") + 1] == "rocpd"


def test_an_old_rocprofv3_gets_only_what_it_has() -> None:
    command = trace_command(["true"], Path("out"), rocprof=_OLD)
    assert "--hip-trace" in command
    assert not {"--rccl-trace", "--hip-runtime-trace"} & set(command)
    with pytest.raises(RunnerError, match="does not write rocpd: it has csv, json"):
        trace_command(["true"], Path("out"), rocprof=_OLD, output_format="rocpd")


def test_a_folder_with_per_cent_signs_is_refused() -> None:
    with pytest.raises(RunnerError, match="between % signs"):
        trace_command(["true"], Path("out%pid%"))


def test_what_rocprofv3_can_is_read_from_its_help(tmp_path: Path) -> None:
    rocprof = _tool(tmp_path)
    assert {"--kernel-trace", "--hip-runtime-trace", "--rccl-trace"} <= rocprof.switches
    assert rocprof.formats == {"csv", "json", "pftrace", "otf2", "rocpd"}


def test_another_program_is_not_taken_for_rocprofv3(tmp_path: Path) -> None:
    with pytest.raises(RunnerError, match="does not answer as rocprofv3 does"):
        Rocprof.locate(write_tool(tmp_path / "rocprofv3", "print('rocprof --stats')"))


@pytest.mark.parametrize(("output_format", "ending"), [("json", ".json"), ("rocpd", ".db")])
def test_a_recording_is_read_with_its_layers(tmp_path: Path, output_format: str, ending: str) -> None:
    content = _run().json() if ending == ".json" else rocpd(_run())
    rocprof = _tool(tmp_path, content=content, ending=ending)
    (file,) = runner.record(["true"], tmp_path / "out", rocprof=rocprof, output_format=output_format)
    assert file == tmp_path / "out" / f"trace_908_results{ending}"
    spans = convert([tmp_path / "out"], Options()).frame("spans").with_columns(pl.col(pl.Categorical).cast(pl.String))
    assert spans.select("name", "level", "attribution").rows()[0] == ("nn.Module: Linear_0", "layer", None)
    assert spans.filter(level="kernel").select("name", "attribution").rows() == [("gemm", "layer")]


@pytest.mark.parametrize(("content", "ending"), [(b"", ".json"), (RocprofRun().json(), ".json"), (b"no", ".db")])
def test_a_recording_without_kernels_is_none(tmp_path: Path, content: bytes, ending: str) -> None:
    rocprof = _tool(tmp_path, content=content, ending=ending)
    with pytest.raises(RunnerError, match="rocprofv3 recorded no kernel: did the program use the GPU"):
        runner.record(["true"], tmp_path / "out", rocprof=rocprof)


def test_an_earlier_recording_is_not_taken_for_this_one(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "trace_1_results.json").write_bytes(_run().json())
    with pytest.raises(RunnerError, match="recorded no kernel"):
        runner.record(["true"], tmp_path / "out", rocprof=_tool(tmp_path))


def test_a_program_that_fails_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunnerError, match="true under rocprofv3 ended with status 3"):
        runner.record(["true"], tmp_path / "out", rocprof=_tool(tmp_path, content=_run().json(), status=3))


def test_each_group_of_counters_is_a_run(tmp_path: Path) -> None:
    rocprof = _tool(tmp_path, content=_run(counted=True).json())
    groups = {"dram_read": ["FETCH_SIZE"], "dram_write": ["WRITE_SIZE"]}
    files = runner.count(["true"], tmp_path / "out", groups, rocprof=rocprof)
    assert [file.parent.name for file in files] == ["dram_read", "dram_write"]
    metrics = convert(files[:1], Options()).frame("metrics").with_columns(pl.col(pl.Categorical).cast(pl.String))
    assert ("dram_read_bytes", 2_048.0) in metrics.select("metric", "value").rows()


@pytest.mark.parametrize("content", [_run().json(), rocpd(_run())])
def test_a_run_that_counted_nothing_is_refused(tmp_path: Path, content: bytes) -> None:
    ending = ".json" if content[:1] == b"{" else ".db"
    rocprof = _tool(tmp_path, content=content, ending=ending)
    output_format = "json" if ending == ".json" else "rocpd"
    with pytest.raises(RunnerError, match="rocprofv3 counted nothing"):
        runner.count(["true"], tmp_path, {"x": ["SQ_WAVES"]}, rocprof=rocprof, output_format=output_format)


def test_a_dry_run_prints_one_command_a_group(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    arguments = ["--counters", "--chip", "MI300X", "--groups", "dram_read,dram_write", "--dry-run", "-o", str(tmp_path)]
    assert runner.main([*arguments, "--", "true"]) == 0
    printed = capsys.readouterr()
    assert [line.split()[2] for line in printed.out.splitlines()] == ["FETCH_SIZE", "WRITE_SIZE"]
    assert "rocprofv3 is not on the PATH" in printed.err


def test_without_an_amd_gpu_the_chip_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert runner.main(["--counters", "--dry-run", "-o", str(tmp_path), "--", "true"]) == 2
    assert "no AMD GPU is known here: name the chip, as --chip gfx942" in capsys.readouterr().err


def test_the_chip_here_is_the_first_gpu_of_the_enumerator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tool(tmp_path / "rocm_agent_enumerator", "print('gfx000\\ngfx942\\ngfx942')")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert "SQ_INSTS_VALU_MFMA_MOPS_XF32" in runner.counter_groups(None, "flops_other")["flops_other"]


@pytest.mark.parametrize(
    ("name", "chip"),
    [
        ("gfx90a:sramecc+:xnack-", "gfx90a"),
        ("AMD Instinct MI250X", "gfx90a"),
        ("AMD Instinct MI300X", "gfx942"),
        ("AMD Instinct MI325X", "gfx942"),
        ("AMD Instinct MI355X", "gfx950"),
    ],
)
def test_a_chip_is_known_by_its_name_or_its_gpus(name: str, chip: str) -> None:
    assert chip_of(name).name == chip


def test_what_has_no_list_is_refused() -> None:
    with pytest.raises(RunnerError, match="only chips of CDNA have them"):
        chip_of("AMD Radeon RX 7900 XTX")
    with pytest.raises(RunnerError, match="no group of counters: choose of dram_read"):
        groups_of_chip(chips()[0], ["roofline"])


def test_a_group_fits_into_one_pass_and_every_counter_of_it_is_used() -> None:
    used = {name for formulas in AMD.values() for formula in formulas for name in formula.names}
    for chip in chips():
        for group, counters in chip.groups.items():
            assert sum(name.startswith("SQ_") for name in counters) <= 8, (chip.name, group)
            assert not {"FETCH_SIZE", "WRITE_SIZE"}.issubset(counters)  # five counters of L2 on MI300, which has four
            assert set(counters) <= used


def test_assumed_is_what_the_help_lists(tmp_path: Path) -> None:
    assert ASSUMED.switches <= _tool(tmp_path).switches


def test_the_folder_alone_is_enough(tmp_path: Path) -> None:
    shutil.copytree(Path(runner.__file__).parent, tmp_path / "runners", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [sys.executable, "-I", "runners/rocprof.py", "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Exit status: 0 recorded" in done.stdout


def test_groups_of_counters_join_the_recorded_kernels_by_layer(tmp_path: Path) -> None:
    """A trace and a run for each of two groups, in which the kernels took other times: two layers of two steps."""
    times = {"mlg": 1, "read": 3, "flop": 4}
    counts = {"mlg": {}, "read": {"FETCH_SIZE": 2.0}, "flop": {"SQ_INSTS_VALU_MFMA_MOPS_BF16": 6.0}}
    traces = []
    for name, factor in times.items():
        run = RocprofRun()
        for step in range(2):
            at = 1_000_000 * (step + 1)
            run.call(at, at + 500_000, "step", 100 * step + 1, "MARKER_CORE_API")
            for layer in range(2):
                begin, number = at + 100_000 * (layer + 1), 100 * step + 10 * layer
                run.call(begin, begin + 50_000, f"nn.Module: Linear_{layer}", number + 2, "MARKER_CORE_API")
                run.launch(begin + 1_000, "gemm", number + 3, (begin + 9_000, begin + 9_000 + 1_000 * factor))
                if counts[name]:
                    run.count(len(run.kernels), **{c: (layer + 1) * value for c, value in counts[name].items()})
        (tmp_path / f"{name}.json").write_bytes(run.json())
        role = "counters" if counts[name] else "kernels"
        traces.append(read_single(tmp_path / f"{name}.json", role, Options(), progress=lambda _: None))
    bundle.write(merge(traces), tmp_path / "profile.xsp")
    profile = xsp.open(tmp_path / "profile.xsp")
    rows = profile.analyze("A12").to_polars().select("layer_name", "dram_read_bytes")
    assert rows.rows() == [("Linear_0", 2_048.0), ("Linear_1", 4_096.0)]
    by_precision = (
        profile.analyze("A14").to_polars().select("layer_name", "precision", "flop_count", "kernel_duration_ns")
    )
    assert by_precision.rows() == [
        ("Linear_0", "bf16_tensor", 3_072.0, 1_000.0),
        ("Linear_1", "bf16_tensor", 6_144.0, 1_000.0),
    ]
