"""What is asked of `xsp`: the inputs, and the commands that each goes through."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fingerprint.command import xsp
from tests.fingerprint.questions import ask

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fingerprint.recorder import Recorder

__all__ = ["Unit", "units"]

# Larger real files, ranks by themselves and damaged files are asked for their answers as JSON in the default mode only,
# and for one of each other kind: every analysis in eight ways takes minutes, the others go through the same code.
_LARGE_BYTES = 3_000_000
_PACKED = 6  # by about how much gzip shrinks a trace

_PAIRS = {
    "devices": ("torch_profiler/transformer_train_gpu_synthetic", "torch_profiler/transformer_train_a100_synthetic"),
    "two_profilers": ("torch_profiler/twin_step_cpu", "nsys_sqlite/twin_step_cpu"),
    "frameworks": ("torch_profiler/convnet_infer_cpu", "onnxruntime/convnet_cpu"),
    "ranks": ("torch_profiler/two_ranks", "torch_profiler/two_ranks"),
    "unlike": ("torch_profiler/odd_names", "run_set/convnet_v100_synthetic"),
}
_REAL_PAIRS = {
    "diff": ("kineto/diff_control.json.gz", "kineto/diff_test.json.gz"),
    "bert": ("kineto/bert_small.h100.json.gz", "kineto/bert_small.mi300x.json.gz"),
    "resnet": ("kineto/resnet50_train_torch18_oldcats.json.gz", "kineto/resnet50_train_torch19.v100.json.gz"),
    "nsys": ("nsys/h100_mfu_before_2gpu.nsys2026_2.sqlite", "nsys/h100_fsdp_2gpu.nsys2026_2.sqlite"),
}
_READINGS = {
    "torch_profiler/transformer_train_gpu_synthetic": (
        ("--layer-source", "module"),
        ("--layer-source", "range"),
        ("--layer-source", "operator"),
        ("--range", "1ms..3ms"),
        ("--device-id", "0"),
        ("--keep-private",),
    ),
    "nsys_sqlite/inference_2gpu_synthetic": (
        ("--layer-source", "operator"),
        ("--os-runtime",),
        ("--device-id", "1"),
        ("--range", "..5ms"),
    ),
    "nsys_sqlite/nvtx_cpu": (("--layer-range", "Conv.*"), ("--model-range", "step.*")),
}
_COHORT = (
    "torch_profiler/transformer_train_gpu_synthetic",
    "torch_profiler/transformer_train_a100_synthetic",
    "torch_profiler/two_ranks",
    "nsys_sqlite/inference_2gpu_synthetic",
    "run_set/convnet_v100_synthetic",
    "torch_profiler/bad/truncated_json",
)
_COMMANDS = (
    "report",
    "top",
    "findings",
    "analyze",
    "batch",
    "convert",
    "export",
    "figure",
    "query",
    "schema",
    "merge",
    "compare",
    "cohort",
    "info",
    "analyses",
    "formats",
    "devices",
)


@dataclass(frozen=True)
class Unit:
    """What one process does; `run` is called in an empty folder in which `fixtures` and `real` lead to the inputs."""

    name: str
    run: Callable[[Recorder], None]
    bytes: int = 0


def units(fixtures: Path, real: Path | None, *, quick: bool) -> list[Unit]:
    """All units, the longest first."""
    all_units = [
        _input(f"fixtures/{case.parent.relative_to(fixtures)}", _read(case), short=quick or "/bad/" in str(case))
        for case in sorted(fixtures.rglob("case.toml"))
    ]
    all_units += [_reading(name, number) for name, options in _READINGS.items() for number in range(len(options))]
    all_units += [_pair(name, *(f"fixtures/{side}" for side in sides)) for name, sides in _PAIRS.items()]
    all_units += [Unit("batch", _batch), Unit("texts", _texts)]
    if real is not None and not quick:
        all_units += [_real_input(path, real) for path in _real_paths(real)]
        all_units += [_pair(name, *(f"real/{side}" for side in sides)) for name, sides in _REAL_PAIRS.items()]
    return sorted(all_units, key=lambda unit: (-unit.bytes, unit.name))


def _read(case: Path) -> str:
    """The file that a case says to read, or its folder."""
    return str(tomllib.loads(case.read_text(encoding="utf-8"))["read"])


def _real_paths(real: Path) -> list[Path]:
    """Each file below a format's folder, and each folder of several; graph_pairs holds traces of different work."""
    formats = [folder for folder in real.iterdir() if folder.is_dir() and folder.name != "reference"]
    return sorted(path for folder in formats for path in folder.rglob("*") if path.name != "graph_pairs")


def _real_input(path: Path, real: Path) -> Unit:
    size = sum(file.stat().st_size for file in [path, *path.rglob("*")] if file.is_file())
    name = f"real/{path.relative_to(real)}"
    unpacked = size * (_PACKED if path.suffix == ".gz" else 1)
    is_rank = path.is_file() and "rank" in path.parent.name
    return _input(name, "", short=is_rank or unpacked > _LARGE_BYTES, size=unpacked)


def _input(name: str, inside: str, *, short: bool, size: int = 0) -> Unit:
    """The unit of one input: `name` is its folder or file, `inside` what to read of a folder."""
    path = str(Path(name, inside))

    def run(recorder: Recorder) -> None:
        bundle = Path("trace.xsp")
        if name.startswith("fixtures/run_set/"):
            read = recorder.run("merge", "merge", path, "-o", str(bundle), output=bundle)
        else:
            read = recorder.run("convert", "convert", path, "-o", str(bundle), output=bundle)
        recorder.run("info", "info", str(bundle) if read else path)
        if read:
            ask(recorder, short=short)

    return Unit(name, run, size)


def _reading(name: str, number: int) -> Unit:
    """The unit of one fixture read with options."""

    def run(recorder: Recorder) -> None:
        folder, bundle = Path("fixtures", name), Path("trace.xsp")
        path = folder / _read(folder / "case.toml")
        recorder.run("convert", "convert", str(path), "-o", str(bundle), *_READINGS[name][number], output=bundle)
        recorder.run("info", "info", str(bundle))

    options = "_".join(_READINGS[name][number]).replace("--", "")
    return Unit(f"reading/{name}/{options}", run)


def _pair(name: str, before: str, after: str) -> Unit:
    """The unit of two inputs compared; their bundles have digests elsewhere."""

    def run(recorder: Recorder) -> None:
        sides = []
        for side, path in (("before.xsp", before), ("after.xsp", after)):
            xsp(["merge" if "run_set" in path else "convert", path, "-o", side])
            sides.append(side)
        rules = ("--fail-on", "model.latency > +3%", "--fail-on", 'kernel["*gemm*"].time > +1ms')
        files = {"--markdown": "summary.md", "--junit": "junit.xml", "--html": "page.html"}  # junit needs a rule
        for form in ("table", "json", "md"):
            recorder.run(f"compare.{form}", "compare", *sides, "-f", form)
        recorder.run("compare.all", "compare", *sides, "--steps", "all", "-f", "json", "--rows", "0")
        recorder.run("compare.per_input", "compare", *sides, "--per-input", "--strict", *rules)
        for option, file in files.items():
            recorder.run(f"compare.{file}", "compare", *sides, *rules[:2], option, file, output=Path(file))

    return Unit(f"compare/{name}", run)


def _batch(recorder: Recorder) -> None:
    """A batch over fixtures, one of which cannot be read, and the cohort of what it leaves."""
    inputs = [f"fixtures/{name}" for name in _COHORT]
    recorder.run("batch", "batch", *inputs, "-o", "out", "--jobs", "1", "-f", "json", output=Path("out"))
    recorder.run("again", "batch", *inputs, "-o", "out", "--jobs", "1")
    recorder.run("cohort", "cohort", "out")
    recorder.run("cohort.page", "cohort", "out", "-o", "cohort.html", output=Path("cohort.html"))
    for form in ("csv", "json", "md", "parquet"):
        folder = Path(f"cohort.{form}")
        recorder.run(str(folder), "cohort", "out", "-f", form, "-o", str(folder), output=folder)


def _texts(recorder: Recorder) -> None:
    """What needs no trace: lists, tables, help."""
    recorder.run("help", "--help")
    for command in _COMMANDS:
        recorder.run(f"help/{command}", command, "--help")
    for listing in ("analyses", "formats", "devices", "schema"):
        recorder.run(listing, listing)
    recorder.run("schema.json", "schema", "-f", "json")
    for listing, command in (("analyses", "schema"), ("formats", "formats")):
        for line in xsp([listing]).stdout.splitlines():
            name = line.split(" ")[0]
            if name.isidentifier():
                recorder.run(f"{command}/{name}", command, name)
