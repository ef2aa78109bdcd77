"""compiled_code.json: layers, operators and sources of the kernels in compiled graphs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.helpers.synth_cupti import CuptiDump
from tests.helpers.synth_nsys import NsightFile
from xsp_ingest.convert import convert
from xsp_ingest.formats.compiled_code.code import event_name
from xsp_ingest.formats.compiled_code.record import COMPILED_CODE
from xsp_ingest.ingester import Options
from xsp_model import XspError, integrity

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

_MODULES = [
    {"name": "Linear_0", "class": "Linear", "path": "Net_0.Linear_0"},
    {"name": "GELU_0", "class": "GELU", "path": "Net_0.GELU_0"},
    {"name": "Net_0", "class": "Net", "path": "Net_0"},
]


def _kernel(name: str, *shares: tuple[int, float], operators: tuple[str, ...] = ()) -> dict[str, Any]:
    modules = [{"module": module, "weight": weight} for module, weight in shares]
    return {"name": name, "operators": list(operators), "sources": ["net.py:3"], "modules": modules}


def _graph(region: str, *kernels: dict[str, Any], direction: str = "forward") -> dict[str, Any]:
    return {"region": region, "graph_id": 0, "direction": direction, "kernels": list(kernels)}


def _code(*graphs: dict[str, Any], **changes: object) -> dict[str, Any]:
    return {"schema": "xsp compiled code", "version": 1, "modules": _MODULES, "graphs": list(graphs), **changes}


def _event(name: str, start: float, length: float, cat: str = "cpu_op", **args: object) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "pid": 7, "tid": 7, "ts": start, "dur": length, "name": name, "args": args}


def _region(region: str, start: float, length: float) -> dict[str, Any]:
    return _event(f"## Call CompiledFxGraph {region} ##", start, length, "user_annotation")


def _paths(folder: Path, code: object, *events: dict[str, Any]) -> list[Path]:
    trace, record = folder / "trace.json", folder / "compiled_code.json"
    trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), encoding="utf-8")
    record.write_text(code if isinstance(code, str) else json.dumps(code), encoding="utf-8")
    return [trace, record]


def _converted(folder: Path, code: object, *events: dict[str, Any]) -> Trace:
    trace = convert(_paths(folder, code, *events), Options())
    integrity.check(trace)
    return trace


def _shares(trace: Trace) -> list[tuple[Any, ...]]:
    """Start of the call, its name, the layer and its weight."""
    spans = trace.frame("spans").select("span_id", "start_ns", pl.col("name").cast(pl.String))
    layers = spans.select(layer_id="span_id", layer="name", layer_start="start_ns")
    joined = trace.frame("attributions").join(spans, on="span_id").join(layers, on="layer_id")
    return joined.sort("start_ns", "layer").select("start_ns", "name", "layer", "weight", "layer_start").rows()


def _ledger(trace: Trace) -> dict[str, tuple[int, int | None]]:
    rows = trace.frame("ledger").select(pl.col("kind").cast(pl.String), "count", "duration_ns").rows()
    return {kind: (count, duration) for kind, count, duration in rows if kind.startswith("compiled")}


def test_the_nth_call_of_a_name_in_a_region_is_the_nth_that_was_generated(tmp_path: Path) -> None:
    code = _code(
        _graph(
            "abc",
            _kernel("extern_kernels.addmm", (0, 1.0)),
            _kernel("cpp_fused_gelu_0", (0, 0.25), (1, 0.75), operators=("aten::gelu", "aten::add")),
            _kernel("extern_kernels.addmm", (1, 1.0)),
        )
    )
    trace = _converted(
        tmp_path,
        code,
        _event("aten::addmm", 0, 5),  # before the region
        _region("abc", 10, 100),
        _event("aten::addmm", 20, 10),
        _event("aten::copy_", 22, 3),
        _event("aten::addmm", 25, 2),  # called by the one around it
        _event("graph_0_cpp_fused_gelu_0", 40, 8),
        _event("aten::addmm", 60, 10),
    )
    assert _shares(trace) == [
        (20_000, "aten::addmm", "Linear_0", 1.0, 20_000),
        (40_000, "graph_0_cpp_fused_gelu_0", "GELU_0", 0.75, 40_000),
        (40_000, "graph_0_cpp_fused_gelu_0", "Linear_0", 0.25, 20_000),
        (60_000, "aten::addmm", "GELU_0", 1.0, 40_000),
    ]
    assert _ledger(trace) == {"compiled_code_joined": (3, None)}
    kernels = trace.frame("compiled_kernels").select(
        "region", "region_call", "direction", "kernel_name", "operators", "sources"
    )
    assert kernels.row(1) == ("abc", 0, "forward", "cpp_fused_gelu_0", "aten::gelu, aten::add", "net.py:3")


def test_layers_have_names_types_and_paths_of_an_eager_run_and_no_length(tmp_path: Path) -> None:
    code = _code(_graph("abc", _kernel("cpp_fused_gelu_0", (1, 1.0))))
    trace = _converted(tmp_path, code, _region("abc", 10, 100), _event("graph_0_cpp_fused_gelu_0", 40, 8))
    layer = trace.frame("layers").select(pl.col("layer_name", "layer_type", "path").cast(pl.String), "layer_index")
    assert layer.rows() == [("GELU_0", "GELU", "Net_0.GELU_0", 0)]
    span = trace.frame("spans").filter(pl.col("level") == "layer").select("start_ns", "duration_ns", "thread_id")
    assert span.rows() == [(30_000, None, None)]


def test_work_of_the_model_itself_is_of_its_call_around_the_region(tmp_path: Path) -> None:
    code = _code(_graph("abc", _kernel("cpp_fused_gelu_0", (2, 1.0))))
    module = _event("nn.Module: Net_0", 5, 200, "python_function")
    trace = _converted(tmp_path, code, module, _region("abc", 10, 100), _event("cpp_fused_gelu_0", 40, 8))
    assert [row[2:] for row in _shares(trace)] == [("Net_0", 1.0, 0)]
    assert trace.frame("layers").height == 1


def test_a_backward_graph_is_of_the_layers_of_its_forward_call(tmp_path: Path) -> None:
    forward = _graph("fwd", _kernel("cpp_fused_gelu_0", (1, 1.0)))
    backward = _graph("bwd", _kernel("cpp_fused_gelu_backward_0", (1, 1.0)), direction="backward")
    trace = _converted(
        tmp_path,
        _code(forward, backward),
        _region("fwd", 0, 10),
        _event("graph_0_cpp_fused_gelu_0", 1, 2),
        _region("fwd", 20, 10),
        _event("graph_0_cpp_fused_gelu_0", 21, 2),
        _region("bwd", 40, 10),  # of the second call: autograd goes backwards
        _event("graph_0_cpp_fused_gelu_backward_0", 41, 2),
        _region("bwd", 60, 10),
        _event("graph_0_cpp_fused_gelu_backward_0", 61, 2),
    )
    starts = [(row[0], row[4]) for row in _shares(trace)]
    assert starts == [(1_000, 1_000), (21_000, 21_000), (41_000, 21_000), (61_000, 1_000)]
    calls = trace.frame("compiled_kernels").select(pl.col("region").cast(pl.String), "region_call").rows()
    assert calls == [("fwd", 0), ("fwd", 1), ("bwd", 0), ("bwd", 1)]


_FIVE = _graph(
    "abc",
    _kernel("extern_kernels.mm", (0, 1.0)),
    _kernel("cpp_fused_gelu_0", (1, 1.0)),
    _kernel("extern_kernels.mm", (0, 1.0)),
    _kernel("cpp_fused_add_1", (2, 1.0)),
    _kernel("extern_kernels.mm", (1, 1.0)),
)
"""mm, gelu, mm, add, mm."""

_NAMES = {"mm": "aten::mm", "bmm": "aten::bmm", "gelu": "graph_0_cpp_fused_gelu_0", "add": "graph_0_cpp_fused_add_1"}


def _call(start: float, *names: str) -> list[dict[str, Any]]:
    """A call of the graph of 100 us in which these are called, 10 us apart; the n-th lasts n us."""
    inside = [_event(_NAMES[name], start + 10 * n, n) for n, name in enumerate(names, start=1)]
    return [_region("abc", start, 100), *inside]


def _of_layers(trace: Trace) -> list[tuple[int, str]]:
    """Start of each call in us, and its layer."""
    return [(row[0] // 1000, row[2]) for row in _shares(trace)]


def test_a_name_called_more_often_than_generated_is_paired_with_nothing_and_counted(tmp_path: Path) -> None:
    code = _code(_graph("abc", _kernel("extern_kernels.mm", (0, 1.0)), _kernel("cpp_fused_gelu_0", (1, 1.0))))
    trace = _converted(tmp_path, code, *_call(0, "mm", "mm", "gelu"))
    assert _of_layers(trace) == [(30, "GELU_0")]
    assert _ledger(trace) == {"compiled_code_joined": (1, None), "compiled_code_unmatched": (2, 3_000)}


@pytest.mark.parametrize(
    "names",
    [
        ("mm", "add", "mm", "gelu", "mm"),  # reversed; or the two swapped
        ("mm", "gelu", "mm", "mm"),  # one too few
        ("mm", "gelu", "mm", "add", "mm", "add"),  # one too many
        ("mm", "gelu", "gelu", "add", "mm"),  # one for another
    ],
)
def test_a_call_whose_generated_kernels_are_in_another_order_is_paired_with_nothing(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    right = ("mm", "gelu", "mm", "add", "mm")
    trace = _converted(tmp_path, _code(_FIVE), *_call(0, *names), *_call(200, *right))
    assert _of_layers(trace) == [  # of the other call alone
        (210, "Linear_0"),
        (220, "GELU_0"),
        (230, "Linear_0"),
        (240, "Net_0"),
        (250, "GELU_0"),
    ]
    count = {name: max(names.count(name), right.count(name)) for name in right}
    assert _ledger(trace) == {
        "compiled_code_joined": (5, None),
        "compiled_code_unmatched": (sum(count.values()), sum(range(1, len(names) + 1)) * 1000),
    }


@pytest.mark.parametrize(
    ("names", "of_layers", "unmatched", "incomplete"),
    [
        # The second mm is missing: Linear_0 has its first, and seems faster than it is.
        (("mm", "gelu", "add", "mm"), [(10, "Linear_0"), (20, "GELU_0"), (30, "Net_0"), (40, "GELU_0")], (1, 0), 1),
        # There is one more between gelu and add: which of the two is the graph's is not known.
        (
            ("mm", "gelu", "mm", "mm", "add", "mm"),
            [(10, "Linear_0"), (20, "GELU_0"), (50, "Net_0"), (60, "GELU_0")],
            (2, 7_000),
            1,
        ),
        # The last one is missing: GELU_0 has its fused kernel.
        (("mm", "gelu", "mm", "add"), [(10, "Linear_0"), (20, "GELU_0"), (30, "Linear_0"), (40, "Net_0")], (1, 0), 1),
    ],
)
def test_a_missing_or_additional_call_of_a_library_unpairs_its_segment_alone(
    tmp_path: Path,
    names: tuple[str, ...],
    of_layers: list[tuple[int, str]],
    unmatched: tuple[int, int],
    incomplete: int,
) -> None:
    trace = _converted(tmp_path, _code(_FIVE), *_call(0, *names))
    assert _of_layers(trace) == of_layers
    assert _ledger(trace) == {
        "compiled_code_joined": (4, None),
        "compiled_code_unmatched": unmatched,
        "compiled_layers_incomplete": (incomplete, None),
    }


def test_layers_that_lack_a_kernel_are_named(tmp_path: Path) -> None:
    trace = _converted(tmp_path, _code(_FIVE), *_call(0, "mm", "gelu", "add", "mm"))
    of_kind = trace.frame("ledger").filter(pl.col("kind") == "compiled_layers_incomplete")
    assert of_kind["detail"].str.ends_with("not matched: Linear_0").to_list() == [True]


def test_a_layer_lacks_what_its_backward_graph_lacks(tmp_path: Path) -> None:
    forward = _graph("fwd", _kernel("extern_kernels.mm", (0, 1.0)), _kernel("cpp_fused_gelu_0", (1, 1.0)))
    kernels = (_kernel("extern_kernels.mm", (0, 1.0)), _kernel("cpp_fused_gelu_backward_0", (1, 1.0)))
    trace = _converted(
        tmp_path,
        _code(forward, _graph("bwd", *kernels, direction="backward")),
        _region("fwd", 0, 30),
        _event("aten::mm", 10, 2),
        _event("graph_0_cpp_fused_gelu_0", 20, 2),
        _region("bwd", 40, 30),
        _event("graph_0_cpp_fused_gelu_backward_0", 50, 2),
    )
    ledger = _ledger(trace)
    assert ledger["compiled_code_unmatched"] == (1, 0)
    assert ledger["compiled_layers_incomplete"] == (1, None)  # Linear_0


def test_without_generated_kernels_a_region_is_one_segment(tmp_path: Path) -> None:
    trace = _converted(tmp_path, _code(_FIVE), *_call(0, "mm", "mm", "mm"), *_call(200, "mm", "mm"))
    assert [layer for _, layer in _of_layers(trace)] == ["Linear_0", "Linear_0", "GELU_0"]
    # The first call lacks gelu and add; the second those and, as which of its mm is missing is not known, all three.
    assert _ledger(trace)["compiled_code_unmatched"] == (2 + 5, 3_000)


@pytest.mark.parametrize(("names", "pairs"), [(("mm", "bmm", "mm"), 3), (("bmm", "mm", "mm"), 0)])
def test_names_of_libraries_are_paired_only_in_the_order_of_the_code(
    tmp_path: Path, names: tuple[str, ...], pairs: int
) -> None:
    libraries = ("mm", "bmm", "mm")
    code = _code(_graph("abc", *(_kernel(f"extern_kernels.{each}", (0, 1.0)) for each in libraries)))
    trace = _converted(tmp_path, code, *_call(0, *names))
    assert len(_shares(trace)) == pairs
    assert _ledger(trace).get("compiled_code_unmatched") == (None if pairs else (3, 6_000))


def test_what_a_region_within_a_region_calls_is_of_that_one(tmp_path: Path) -> None:
    code = _code(
        _graph("out", _kernel("cpp_fused_gelu_0", (0, 1.0)), _kernel("cpp_fused_add_1", (0, 1.0))),
        _graph("in", _kernel("cpp_fused_gelu_0", (1, 1.0))),
    )
    trace = _converted(
        tmp_path,
        code,
        _region("out", 0, 100),
        _event("graph_0_cpp_fused_gelu_0", 10, 5),
        _region("in", 20, 30),
        _event("graph_1_cpp_fused_gelu_0", 30, 5),
        _region("xyz", 60, 10),  # of which nothing is known
        _event("graph_2_cpp_fused_gelu_0", 62, 5),
        _event("graph_0_cpp_fused_add_1", 80, 5),
    )
    assert _of_layers(trace) == [(10, "Linear_0"), (30, "GELU_0"), (80, "Linear_0")]
    assert _ledger(trace) == {"compiled_code_joined": (3, None)}


def test_a_generated_kernel_that_the_trace_lacks_is_counted(tmp_path: Path) -> None:
    code = _code(_graph("abc", _kernel("extern_kernels.mm", (0, 1.0)), _kernel("cpp_fused_gelu_0", (1, 1.0))))
    trace = _converted(tmp_path, code, _region("abc", 10, 100), _event("aten::mm", 20, 4))
    assert _ledger(trace) == {"compiled_code_joined": (1, None), "compiled_code_unmatched": (1, 0)}


def test_a_kernel_on_a_device_is_paired_where_its_launch_stands(tmp_path: Path) -> None:
    code = _code(_graph("abc", _kernel("triton_poi_fused_gelu_0", (0, 0.5), (1, 0.5))))
    launch = _event("cudaLaunchKernel", 20, 2, "cuda_runtime", correlation=9)
    kernel = _event("triton_poi_fused_gelu_0", 300, 50, "kernel", correlation=9, device=0, stream=7)
    trace = _converted(tmp_path, code, _region("abc", 10, 100), launch, {**kernel, "tid": 70, "pid": 0})
    assert [(row[0], row[2], row[3]) for row in _shares(trace)] == [
        (290_000, "GELU_0", 0.5),
        (290_000, "Linear_0", 0.5),
    ]


def test_what_a_generated_call_launches_is_of_its_layers(tmp_path: Path) -> None:
    code = _code(_graph("abc", _kernel("triton_poi_fused_gelu_0", (0, 1.0))))
    call = _event("triton_poi_fused_gelu_0", 18, 6)
    launch = _event("cudaLaunchKernel", 20, 2, "cuda_runtime", correlation=9)
    kernel = _event("triton_poi_fused_gelu_0", 300, 50, "kernel", correlation=9, device=0, stream=7)
    trace = _converted(tmp_path, code, _region("abc", 10, 100), call, launch, {**kernel, "tid": 70, "pid": 0})
    assert [(row[0], row[2]) for row in _shares(trace)] == [(8_000, "Linear_0"), (290_000, "Linear_0")]
    assert _ledger(trace) == {"compiled_code_joined": (1, None)}


def test_code_of_another_process_is_refused(tmp_path: Path) -> None:
    paths = _paths(tmp_path, _code(_graph("abc")), _region("xyz", 10, 100))
    with pytest.raises(XspError, match="of none of the runs given with it"):
        convert(paths, Options())


def test_alone_it_says_what_it_lacks(tmp_path: Path) -> None:
    path = _paths(tmp_path, _code(_graph("abc")))[1]
    with pytest.raises(XspError, match="but not when they ran"):
        COMPILED_CODE.read(path, Options())


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (json.dumps(_code(_graph("abc")))[:-9], "damaged"),
        (_code(_graph("abc"), version=2), "version 2 of its format"),
        (_code(_graph("abc", _kernel("k", (9, 1.0)))), "not listed"),
        (_code(_graph("abc", _kernel("k", (0, 0.5), (0, 0.5)))), "of one twice"),
        (_code(_graph("abc", _kernel("k", (0, 0.5), (1, 0.2)))), "add up to 0.7"),
        (_code(_graph("abc", _kernel("k", (0, -1.0), (1, 2.0)))), "damaged"),
        (_code(_graph("abc"), modules=[{"name": 3}]), "damaged"),
        (_code(_graph("abc"), _graph("abc")), "graph abc is listed twice"),
        (_code(_graph("abc", direction="sideways")), "damaged"),
        (_code(_graph("abc", {**_kernel("k"), "call": -1})), "damaged"),
        (_code(_graph("abc", {**_kernel("k"), "call": True})), "damaged"),
        (_code(_graph("abc", {**_kernel("k"), "call": 1}, {**_kernel("k"), "call": 0})), "k is call 1 where call 0"),
        (
            _code(_graph("abc", {**_kernel("k"), "debug_handle": 2}, {**_kernel("l"), "debug_handle": 1})),
            "do not stand in order: handle 1 comes behind 2",
        ),
        ('{"schema": "xsp compiled code", "version": 1, "x": ' + "[" * 100_000, "damaged"),
    ],
)
def test_a_damaged_record_is_refused_in_one_sentence(tmp_path: Path, code: object, why: str) -> None:
    with pytest.raises(XspError, match=why):
        convert(_paths(tmp_path, code, _region("abc", 10, 100)), Options())


def test_names_of_library_functions_are_those_of_operators() -> None:
    assert event_name("extern_kernels.addmm") == "aten::addmm"
    assert event_name("torch.ops.mkldnn._convolution_pointwise.default") == "mkldnn::_convolution_pointwise"
    assert event_name("cpp_fused_gelu_0") == "cpp_fused_gelu_0"


_BY_A_TOOL = _code(
    _graph(
        "abc",
        _kernel("triton_poi_fused_gelu_0", (0, 0.25), (1, 0.75)),
        _kernel("extern_kernels.addmm", (0, 1.0)),
    )
)
_GEMM = [("aten::addmm", "Linear_0", 1.0), ("ampere_sgemm_32x128_tn", "Linear_0", 1.0)]


def _shared_by_kernels(trace: Trace) -> list[tuple[Any, ...]]:
    """Each kernel with the layer that it is of, or is launched by an operator of, and its part there."""
    integrity.check(trace)
    return [(name, layer, weight) for _, name, layer, weight, _ in _shares(trace)]


def test_what_a_runner_marks_under_nsys_is_paired_as_under_the_frameworks_profiler(tmp_path: Path) -> None:
    nsight = NsightFile()
    nsight.range(0, 1_000, "step", style="StartEnd")
    nsight.range(10, 900, "## Call CompiledFxGraph abc ##")
    nsight.launch((20, 30), (40, 140), "triton_poi_fused_gelu_0")
    nsight.range(200, 300, "aten::addmm")
    nsight.launch((210, 220), (230, 330), "ampere_sgemm_32x128_tn")
    files = [nsight.write(tmp_path / "trace.sqlite"), tmp_path / "compiled_code.json"]
    files[1].write_text(json.dumps(_BY_A_TOOL), encoding="utf-8")
    trace = convert(files, Options())
    spans = trace.frame("spans").select(pl.col("name", "level").cast(pl.String)).rows()
    assert ("## Call CompiledFxGraph abc ##", "application") in spans
    assert _shared_by_kernels(trace) == [
        ("triton_poi_fused_gelu_0", "GELU_0", 0.75),
        ("triton_poi_fused_gelu_0", "Linear_0", 0.25),
        *_GEMM,
    ]
    assert _ledger(trace) == {"compiled_code_joined": (2, None)}


def test_what_a_runner_marks_for_cupti_is_paired_likewise(tmp_path: Path) -> None:
    dump = CuptiDump()
    dump.operator(0, 1_000, "step", 1, level="model")
    dump.operator(10, 900, "## Call CompiledFxGraph abc ##", 2, level="application")
    dump.call(20, 30, "cuLaunchKernel", 5)
    dump.external(2, 5)
    dump.kernel(40, 140, 5, name="triton_poi_fused_gelu_0")
    dump.operator(200, 300, "aten::addmm", 3, level="operator")
    dump.call(210, 220, "cudaLaunchKernel_v7000", 6)
    dump.external(3, 6)
    dump.kernel(230, 330, 6, name="ampere_sgemm_32x128_tn")
    files = [tmp_path / "cupti.jsonl", tmp_path / "compiled_code.json"]
    files[0].write_bytes(dump.lines())
    files[1].write_text(json.dumps(_BY_A_TOOL), encoding="utf-8")
    assert _shared_by_kernels(convert(files, Options())) == [
        ("triton_poi_fused_gelu_0", "GELU_0", 0.75),
        ("triton_poi_fused_gelu_0", "Linear_0", 0.25),
        *_GEMM,
    ]
