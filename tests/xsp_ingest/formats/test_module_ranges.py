"""Ranges of modules with a dict for text: a layer a module, in files of Nsight Systems and of torch.profiler."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tests.helpers.synth import KinetoTrace
from tests.helpers.synth_cupti import PROCESS, THREAD, CuptiDump
from tests.helpers.synth_nsys import NsightFile
from tests.helpers.synth_rocprof import RocprofRun
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_ingest.link import range_rules
from xsp_ingest.link.range_rules import module_ranges, module_text

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from xsp_ingest.link.range_rules import ModuleText
    from xsp_model import Trace

_NAMED = ("layer_index", "layer_name", "layer_type", "path", "shapes")


def _text(path: str, **facts: object) -> str:
    return str({"Module": path, **facts})


def _served(tokens: tuple[int, ...]) -> NsightFile:
    """For each count of tokens a step of a block with a product inside it and an addition of its own."""
    file = NsightFile()
    for number, count in enumerate(tokens):
        at = number * 10_000
        shapes = [[count, 64]]
        file.range(at, at + 5_000, f"step {number}")
        file.range(at + 100, at + 900, _text("model.layers.0", Inputs=shapes))
        file.range(at + 200, at + 300, _text("model.layers.0.mlp", TrainableParams={"weight": [64, 64]}, Inputs=shapes))
        file.launch((at + 210, at + 220), (at + 1_000, at + 1_050), "gemm")
        file.launch((at + 600, at + 610), (at + 2_000, at + 2_030), "add")
    return file


def _read(file: NsightFile, folder: Path, **options: list[str]) -> Trace:
    return convert([file.write(folder / "trace.sqlite")], Options(**options))  # type: ignore[arg-type]


def _layers(trace: Trace) -> set[tuple[object, ...]]:
    return set(trace.frame("layers").drop_nulls("layer_index").select(_NAMED).rows())


def test_a_module_is_one_layer_whatever_its_shapes_and_its_path_stands_once(tmp_path: Path) -> None:
    trace = _read(_served((8, 1)), tmp_path)
    assert _layers(trace) == {
        (0, "model.layers.0.mlp", "mlp", "model.layers.0.mlp", "[[8, 64]]"),
        (0, "model.layers.0.mlp", "mlp", "model.layers.0.mlp", "[[1, 64]]"),
        (1, "model.layers.0", "layers", "model.layers.0", "[[8, 64]]"),
        (1, "model.layers.0", "layers", "model.layers.0", "[[1, 64]]"),
    }
    work = trace.frame("spans").filter(pl.col("level") == "kernel")
    names = trace.frame("layers").select(pl.col("span_id").alias("layer_id"), "layer_name")
    own = work.join(names, on="layer_id").group_by("layer_name").agg(pl.col("duration_ns").sum()).sort("layer_name")
    assert own.rows() == [("model.layers.0", 60), ("model.layers.0.mlp", 100)]
    assert "[8, 64]" in trace.frame("ranges").filter(pl.col("text").str.contains("mlp"))["text"][0]


def test_what_vllm_writes_behind_a_call_is_no_call(tmp_path: Path) -> None:
    file = _served((8,))
    file.range(310, 320, _text("model.layers.0.mlp", TrainableParams={"weight": [64, 64]}, Outputs=[[8, 64]]))
    file.range(910, 920, _text("model.layers.0", Outputs=[[8, 64]]))
    trace = _read(file, tmp_path)
    assert sorted(trace.frame("layers")["layer_name"].cast(pl.String)) == ["model.layers.0", "model.layers.0.mlp"]
    levels = trace.frame("spans").filter(pl.col("name").cast(pl.String).str.contains("outputs"))["level"]
    assert levels.cast(pl.String).to_list() == ["application"] * 2


def test_of_texts_that_say_neither_inputs_nor_outputs_every_second_is_no_call_where_outputs_are_written() -> None:
    silent = _text("m.sampler")
    texts = [silent, silent, _text("m.head", Outputs=[[1]]), silent, silent]
    ranges = pl.DataFrame({"text": texts}).with_columns(
        pl.col("text").alias("name"), pl.lit(1).alias("process_id"), pl.lit(1).alias("thread_id")
    )
    ranges = ranges.with_columns(pl.int_range(5).alias("row"), pl.int_range(5).alias("start_ns"))
    named, layers, _ = module_ranges(ranges)
    assert layers["row"].to_list() == [0, 3]
    assert [name.split(":")[0] for name in named["name"]] == [
        "nn.Module", "nn.Module outputs", "nn.Module outputs", "nn.Module", "nn.Module outputs",
    ]  # fmt: skip
    assert module_ranges(ranges.filter(pl.col("row") != 2))[1].height == 4  # as SGLang's: no outputs, all are calls


def test_what_cannot_be_read_keeps_its_text_and_is_counted(tmp_path: Path) -> None:
    file = _served((8,))
    for text in ("{'Module': 'model.layers.1'", "{'Module': '" + "x" * 1_000_000 + "'}"):
        file.range(3_000, 3_100, text)
    trace = _read(file, tmp_path)
    counts = dict(trace.frame("ledger").select(pl.col("kind").cast(pl.String), "count").rows())
    assert counts["module_text_unreadable"] == 2
    assert "{'Module': 'model.layers.1'" in trace.frame("spans")["name"].cast(pl.String).to_list()
    assert len(_layers(trace)) == 2


def test_a_text_is_read_once_however_many_ranges_have_it_and_no_other_text_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    read: list[str] = []

    def counted(text: str) -> ModuleText | None:
        read.append(text)
        return module_text(text)

    monkeypatch.setattr(range_rules, "module_text", counted)
    _read(_served((8, 8, 8)), tmp_path)
    assert len(read) == 2
    read.clear()
    file = NsightFile()
    file.range(0, 10, "{json}")
    convert([file.write(tmp_path / "other.sqlite")], Options())
    assert not read


def test_the_users_patterns_go_before(tmp_path: Path) -> None:
    trace = _read(_served((8,)), tmp_path, layer_ranges=[r"layers\.0$"])
    kinds = trace.frame("layers").select(pl.col("layer_name", "source").cast(pl.String)).rows()
    assert ("model.layers.0.mlp", "module") in kinds
    assert not any(name == "model.layers.0" and source == "module" for name, source in kinds)


def test_annotations_of_torch_profiler_are_read_alike(tmp_path: Path) -> None:
    trace = KinetoTrace()
    trace.annotation(_text("model.layers.0", Inputs=[[8, 64]]), 1_000, 9_000)
    trace.annotation(_text("model.layers.0.mlp", Inputs=[[8, 64]]), 2_000, 2_000)
    trace.annotation("{'Module': 'cut", 5_000, 10)
    trace.launch("gemm", 2_100, 12_000, 500)
    linked = convert([trace.write(tmp_path / "trace.json")], Options())
    assert {(row[1], row[3]) for row in _layers(linked)} >= {("model.layers.0.mlp", "model.layers.0.mlp")}
    assert linked.frame("runs")["layer_source"].cast(pl.String).to_list() == ["module"]
    counts = dict(linked.frame("ledger").select(pl.col("kind").cast(pl.String), "count").rows())
    assert counts["module_text_unreadable"] == 1


def test_where_pytorch_recorded_the_modules_annotations_are_no_second_call_of_them(tmp_path: Path) -> None:
    trace = KinetoTrace()
    trace.module("Block_0", 500, 10_000)
    trace.annotation(_text("model.layers.0", Inputs=[[8, 64]]), 1_000, 9_000)
    trace.launch("gemm", 2_100, 12_000, 500)
    layers = convert([trace.write(tmp_path / "trace.json")], Options()).frame("layers")
    rows = layers.select(pl.col("layer_name", "source").cast(pl.String), "layer_index").sort("layer_name").rows()
    assert rows == [("Block_0", "module", 0), ("model.layers.0", "range", None)]


def _as_listed(path: Path) -> list[tuple[object, ...]]:
    columns = ("layer_name", "layer_type", "path", "shapes", "source")
    return convert([path], Options()).frame("layers").select(pl.col(columns).cast(pl.String)).rows()


def test_roctx_ranges_of_rocprofv3_are_read_alike(tmp_path: Path) -> None:
    run = RocprofRun()
    run.call(500, 90_000, _text("model.layers.0.mlp", Inputs=[[8, 64]]), 1, "MARKER_CORE_API")
    run.launch(1_000, "_Z3addPKfS0_Pf.kd", 2, (20_000, 30_000), gpu=1)
    (tmp_path / "r.json").write_bytes(run.json())
    assert _as_listed(tmp_path / "r.json") == [
        ("model.layers.0.mlp", "mlp", "model.layers.0.mlp", "[[8, 64]]", "module"),
    ]  # fmt: skip


def test_markers_of_cupti_are_read_alike(tmp_path: Path) -> None:
    dump = CuptiDump()
    for flags, at, extra in ((2, 500, {"name": _text("model.head", Inputs=[[8, 64]])}), (4, 3_000, {})):
        dump.add("MARKER", timestamp=at, id=7, flags=flags, processId=PROCESS, threadId=THREAD, **extra)
    dump.kernel(8_000, 9_000, 1)
    (tmp_path / "dump").write_bytes(dump.lines())
    assert _as_listed(tmp_path / "dump") == [("model.head", "head", "model.head", "[[8, 64]]", "module")]


def test_a_real_capture_has_the_modules_of_the_model_each_called_once_a_step(fixtures_dir: Path) -> None:
    trace = convert([fixtures_dir / "nsys_sqlite" / "layerwise_cpu" / "nvtx.sqlite"], Options())
    calls = trace.frame("layers").join(trace.frame("spans").select("span_id", "step"), on="span_id")
    block = ["", ".mlp.down", ".mlp.up", ".norm"]
    paths = ["Decoder", "Decoder.embed", *(f"Decoder.layers.{n}{part}" for n in (0, 1) for part in block)]
    assert sorted(set(calls["path"].cast(pl.String))) == paths
    assert sorted(calls.group_by("path").agg(pl.col("step").sort())["step"].to_list()) == [[0, 1, 2]] * len(paths)
    up = calls.filter(pl.col("path").cast(pl.String) == "Decoder.layers.0.mlp.up").sort("step")
    assert up["shapes"].cast(pl.String).to_list() == ["[[8, 16]]", "[[1, 16]]", "[[1, 16]]"]
    assert set(up["layer_type"].cast(pl.String)) == {"Linear"}
