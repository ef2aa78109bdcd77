"""Every format that XSP reads, in one place, imported when a file may be of it; and the page about all of them."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar, cast

from xsp_ingest.files.content import decode_head
from xsp_ingest.files.other_tools import all_refusals
from xsp_ingest.files.perfetto import is_perfetto, json_head
from xsp_ingest.ingester import Ingester, Match
from xsp_ingest.staging.raw import RawTrace
from xsp_model import XspError
from xsp_model.errors import PlugInError, plug_in_fault, plug_ins

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xsp_ingest.files.content import Probe

__all__ = ["ENTRY_POINTS", "FORMATS", "Format", "about", "all_ingesters", "candidates", "page"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Format:
    """A format by what can be said of it before it is imported.

    `location` is where its ingester is, as entry points name it, below `xsp_ingest.formats`.
    `marks` are pairs of what a file begins with, after blanks, and what stands somewhere in its first 64 KiB. Every
    file that the ingester claims has one of them; others may too: whether a file is claimed, only `sniff` says.
    Marks hold no double quotes, which CSV may set within a cell: they are looked for in the text without.
    """

    name: str
    location: str
    marks: tuple[tuple[str, str], ...]
    takes_folders: bool = False

    def ingester(self) -> Ingester:
        """The format's one ingester, imported."""
        module, _, name = self.location.partition(":")
        ingester: Ingester = getattr(import_module(f"xsp_ingest.formats.{module}"), name)
        return ingester

    def may_claim(self, text: str) -> bool:
        """Whether a file whose text begins so, without blanks before it and quotes in it, has one of the marks."""
        return any(text.startswith(start) and part in text for start, part in self.marks)


_SQLITE = ("SQLite format 3", "")
_PARQUET = ("PAR1", "")
FORMATS: tuple[Format, ...] = (
    Format(
        "torch_profiler",
        "torch_profiler:TORCH_PROFILER",
        (("{", "schemaVersion"), ("{", "deviceProperties"), ("{", "traceEvents"), ("[", "")),
    ),
    Format("nsys_sqlite", "nsys.sqlite:NSYS_SQLITE", (_SQLITE,)),
    Format(
        "nsys_export",
        "nsys.export:NSYS_EXPORT",
        (("", "table_name"), ("{data:[[Unknown]", ""), ("{Type:", ""), ("{type:String", "")),
        takes_folders=True,
    ),
    Format(
        "nsys_report", "nsys.report:NSYS_REPORT", (("NVIDIA Tegra Profiler", ""), ("", "NVIDIA Nsight Systems Stream"))
    ),
    Format(
        "nsys_stats_csv",
        "nsys.stats_csv:NSYS_STATS_CSV",
        (
            _PARQUET,
            *(("", one) for one in ("CorrId", "CorrID", "API Start", "DurNonChild", "Projected Start", "Total Time")),
            *(("", one) for one in ("Operation", "TAvg", "Total Proj Time", "NVTX Range", "Mean")),
        ),
    ),
    Format("jaeger", "jaeger:JAEGER", (("{", "traceID"), ("{", "spans"), ("{", "processes"), ("{", "data"))),
    Format("otlp", "jaeger.otlp:OTLP", (("{", "resource"),)),
    Format(
        "ncu_csv",
        "ncu.csv:NCU_CSV",
        (
            *(("", f"{one} Name") for one in ("Kernel", "Function", "Demangled")),
            ("==PROF==", ""),
            ("==ERROR==", ""),
            ("", "Metric Value"),
        ),
    ),
    Format("ncu_report", "ncu.report:NCU_REPORT", (("NVR", ""),)),
    Format("nvprof_metrics", "nvprof_metrics:NVPROF_METRICS", (("", "Invocations"), ("", "Context"))),
    Format(
        "loadgen",
        "loadgen:LOADGEN",
        (
            (":::MLLOG", ""),
            ("=====", "MLPerf Results Summary"),
            *(("{", one) for one in ("GenerateLoadableSets", "GenerateQueries", "SampleLoop", "IssueQuery")),
            ("{", "IOThreadLoop"),
        ),
    ),
    Format(
        "serving_load",
        "serving_load:SERVING_LOAD",
        (
            *(("{", one) for one in ("input_tokens", "first_token", "request_", "response_timestamps")),
            ("[", "request_throughput"),
        ),
    ),
    Format("cupti_dump", "cupti_dump:CUPTI_DUMP", (_PARQUET, ("{", "xsp cupti dump"))),
    Format(
        "xplane",
        "xplane:XPLANE",
        tuple(("", one) for one in ("/host:", "/device:", "Task Environment", "#Chip", "/megascale", "CUSTOM:")),
        takes_folders=True,
    ),
    Format("xla_trace_json", "xplane.trace_json:XLA_TRACE_JSON", (("{", "highres-ticks"),)),
    Format("tf_timeline", "tf_timeline:TF_TIMELINE", (("{", "Allocators"),)),
    Format(
        "rocprofv3",
        "rocprofv3:ROCPROFV3",
        (
            _SQLITE,
            *(("{", one) for one in ("rocprofiler-sdk-tool", "GPU", "COPY", "CPU HIP API")),
            ("[", "GPU"),
            *(("", one) for one in ("Start_Timestamp", "Counter_Value", "Logical_Node_Id", "delta_ns")),
            ("", "KernelName"),
        ),
    ),
    Format("execution_trace", "execution_trace:EXECUTION_TRACE", (("{", "schema"),)),
    Format("compiled_code", "compiled_code.record:COMPILED_CODE", (("{", "xsp compiled code"),)),
    Format("torch_trace_log", "compiled_code.log:TORCH_TRACE_LOG", tuple((one, "] {") for one in "VIWE")),
    Format("memory_snapshot", "memory_snapshot:MEMORY_SNAPSHOT", (("", "segments"), ("[", ""))),
    Format("nvml_samples", "nvml_samples:NVML_SAMPLES", (("{", "xsp nvml samples"),)),
    Format("system_samples", "system_samples:SYSTEM_SAMPLES", (("{", "xsp system samples"),)),
    Format(
        "evaluations",
        "evaluations:EVALUATIONS",
        (("[", "machine_architecture"), ("[", "LAYER_CU"), ("LayerName,LayerType,BenchmarkName", "RealTime")),
    ),
    Format("onnxruntime", "onnxruntime:ONNXRUNTIME", (("[", "cat"),)),
    Format(
        "tensorrt",
        "tensorrt:TENSORRT",
        tuple(
            ("[", one)
            for one in ("count", "startEnqMs", "startInMs", "startH2dMs", "startComputeMs", "latencyMs", "computeMs")
        ),
    ),
    Format("fai_pep", "fai_pep:FAI_PEP", (("", "Observer {"), ("{", " latency"))),
    Format("mxnet", "mxnet:MXNET", (("{", "cpu/0"),)),
    Format("nvprof", "nvprof:NVPROF", (_SQLITE, ("", "<session"), ("", "Duration"), ("", "Time(%)"))),
    Format("chrome_trace", "chrome_trace:CHROME_TRACE", (("{", "traceEvents"), ("[", "ph"))),
)
"""The project's own formats."""
ENTRY_POINTS = "xsp.ingesters"
"""The entry point group through which other distributions add theirs: each names an Ingester object."""


def all_ingesters() -> tuple[Ingester, ...]:
    """The project's own ingesters and those that installed distributions add."""
    return (*(each.ingester() for each in FORMATS), *_ingesters_of_others())


def candidates(probe: Probe, format_name: str | None = None) -> tuple[Ingester, ...]:
    """The ingesters that may take the file or folder, in their order; to ask the others would change no answer.

    With a format's name it is that format's alone; all, where no format is called so.
    """
    if format_name is not None:
        formats = [each for each in FORMATS if each.name == format_name]
        others = tuple(each for each in _ingesters_of_others() if each.name == format_name)
        return (*(each.ingester() for each in formats), *others) or all_ingesters()
    if probe.path.is_dir():
        own = [each for each in FORMATS if each.takes_folders]
    else:
        text = decode_head(probe.text).lstrip().replace('"', "")
        if is_perfetto(probe.text):
            text = decode_head(json_head(probe)).replace('"', "") + text
        own = [each for each in FORMATS if each.may_claim(text)]
    return (*(each.ingester() for each in own), *_ingesters_of_others())


@cache
def _ingesters_of_others() -> tuple[Ingester, ...]:
    """The ingesters of other distributions, looked up once: to look costs as much as to read a small trace."""
    ingesters: dict[str, Ingester] = {}
    for point, ingester in plug_ins(ENTRY_POINTS):
        if not isinstance(ingester, Ingester):
            raise XspError(
                f"the entry point {point} of {ENTRY_POINTS} is no Ingester",
                advice="Remove the distribution that has it, or make its object one of a subclass of Ingester",
            )
        name = getattr(ingester, "name", None)
        if not isinstance(name, str) or name in {*ingesters, *(each.name for each in FORMATS)}:
            raise XspError(
                f"the entry point {point} of {ENTRY_POINTS} has no name of its own for its format ({name!r})",
                advice="Remove the distribution that has it, or give its Ingester a name that no other format has",
            )
        ingesters[name] = cast("Ingester", _IngesterOfOthers(ingester))
    return tuple(ingesters.values())


class _IngesterOfOthers:
    """An ingester of another distribution, whose faults become errors that name it: they are none of xsp."""

    def __init__(self, ingester: Ingester) -> None:
        self._ingester = ingester

    def sniff(self, probe: Probe) -> Match:
        """How surely the file is of it; what is no Match is a fault."""
        return self._call(lambda probe: Match(self._ingester.sniff(probe)), probe)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (whatever an ingester has)
        value = getattr(self._ingester, name)
        if name in {"read_runs", "read_part", "supplement"}:
            return partial(self._read, value)
        return partial(self._call, value) if callable(value) else value

    def _read(self, method: Callable[..., Sequence[RawTrace]], *arguments: object) -> Sequence[RawTrace]:
        """What it reads, which has to be runs: anything else would fail somewhere else, and look like our fault."""
        runs = self._call(lambda *of: list(method(*of)), *arguments)
        strangers = [type(run).__name__ for run in runs if not isinstance(run, RawTrace)]
        if strangers or not runs:
            raise PlugInError(
                f"the plug-in that reads {self._ingester.name!r} gives {(*strangers, 'nothing')[0]} for a run",
                advice="It is no part of xsp: let its `read` return a RawTrace, or remove the distribution that has it",
            )
        return runs

    def _call(self, method: Callable[..., T], *arguments: object) -> T:
        try:
            return method(*arguments)
        except (XspError, MemoryError):
            raise
        except Exception as error:
            raise plug_in_fault(f"the plug-in that reads {self._ingester.name!r} fails", error) from error


# The page about all formats, made of the registry's titles and of the README in each format's package.

_HEADING = re.compile(r"^#", re.MULTILINE)
_LINE = re.compile(r"^# (.*)\n+")
_INTRODUCTION = """\
# Formats

<!-- Made by `xsp formats --markdown` from the registry and the README of each format's package: change those. -->

A file's format is judged by its content, whatever the file is called; `--format NAME` forces one. Compressed content
may be 64 GiB at most and, where it is longer than 1 GiB, 400 times as long as its file. Links that you name are
followed; links in a folder that lead out of it, pipes, sockets and devices are left out and counted. A SQLite database
that another program is writing is refused. Pickles are never opened.

JSON is read as tools write it: raw control characters, backslashes of Windows paths, bare quotes within texts, bytes
that are no UTF-8, `N/A` and `NaN`, commas too many, a list without its end, and a file that is cut off in the middle,
also of gzip. What is plainly meant is mended; one event is lost where one is broken; the ledger says where, which and
why. `--strict-json` refuses such files.
"""


def about(ingester: Ingester) -> str:
    """The README of the format's package; its title alone where the package has none."""
    package = _package(ingester)
    readme = files(package) / "README.md" if package else None
    if readme is None or not readme.is_file():
        return f"# {ingester.name}\n\n{ingester.title}\n"
    return readme.read_text(encoding="utf-8")


def page(ingesters: Sequence[Ingester]) -> str:
    """All formats as Markdown: a table of them, a section for each, and what is recognised but not read."""
    heads = [_LINE.match(about(i)) for i in ingesters]
    titles = [head[1] if head else i.name for head, i in zip(heads, ingesters, strict=True)]
    rows = [f"| `{i.name}` | {_cell(i.title)} |" for i in ingesters]
    table = "\n".join(["| format | what it is, and what was seen |", "|---|---|", *rows])
    sections = [_section(title, i) for title, i in zip(titles, ingesters, strict=True)]
    others = "\n".join(
        ["| a file that is | what to do |", "|---|---|", *(f"| {_cell(w)} | {_cell(a)} |" for w, a in all_refusals())]
    )
    recognised = f"## Recognised, not read\n\nWhat is said of files that no reader claims.\n\n{others}\n"
    return "\n".join([_INTRODUCTION, table + "\n", *sections, recognised])


def _section(title: str, ingester: Ingester) -> str:
    """The README one level deeper, under its title and the name that `--format` takes."""
    text = _LINE.sub("", about(ingester)).rstrip()
    folder = _package(ingester).replace(".", "/")
    return f"## {title}\n\nFormat `{ingester.name}`. Source: `{folder}`.\n\n{_HEADING.sub('##', text)}\n"


def _package(ingester: Ingester) -> str:
    """Where the ingester's class is defined: in a package's own file, or in a module beside it."""
    module = sys.modules[type(ingester).__module__]
    return module.__name__ if hasattr(module, "__path__") else module.__name__.rpartition(".")[0]


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;")
