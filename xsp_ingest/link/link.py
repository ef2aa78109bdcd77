"""From staged runs to one trace: all six rules of linking in order."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.link import clock, layers
from xsp_ingest.link.attributions import attribute, pair_replays, replayed_first, spans_of_capture, with_forward_lines
from xsp_ingest.link.forest import at_spans, grow
from xsp_ingest.link.layers import choose_source, lay, layer_spans
from xsp_ingest.link.steps import with_marked_steps
from xsp_ingest.staging.raw import NOTHING, RunOverrides
from xsp_model import GRAPH_CAPTURE, Attribution, Finding, LayerSource, Level, Severity, TraceBuilder
from xsp_model.columns.arrays import nullable_index
from xsp_model.devices import fill, unknown, with_used
from xsp_model.errors import readable
from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_ingest.link.attributions import Attributed
    from xsp_ingest.link.clock import Zero
    from xsp_ingest.link.forest import Forest
    from xsp_ingest.link.layers import Layering
    from xsp_ingest.staging.raw import RawTrace, RunFacts
    from xsp_model import Trace
    from xsp_model.columns.arrays import Bools, Ints, Positions

__all__ = ["Source", "link"]

_INPUTS = ("input_shapes", "input_dtypes", "input_strides", "concrete_inputs", "source_lines")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a run was read from: what `runs` says of it."""

    format: str
    path: str
    sha256: str | None
    bytes: int | None


def link(
    raws: Sequence[RawTrace],
    sources: Sequence[Source],
    layer_source: str,
    noted: Sequence[Finding] = (),
    *,
    overrides: RunOverrides = NOTHING,
    align_clocks: bool = False,
) -> Trace:
    """The linked trace of one or more runs; XspError where the requested layers are not there.

    With `align_clocks` the runs' clocks are put right by their collectives.
    Runs with the role GRAPH_CAPTURE come last. Of them only what was captured is kept, and their times count from 0.
    """
    count = sum(raw.facts.role != GRAPH_CAPTURE for raw in raws)
    zeros, findings = clock.zeros(raws[:count])
    zeros += [clock.alone(raw) for raw in raws[count:]]
    paths = [source.path for source in sources]
    clock.check_extent(raws, zeros, paths)
    forests, marked = [], []
    for run, read in enumerate(raws):
        raw, inferred = with_marked_steps(read, by_period=len(raws) == 1 and not overrides.level)
        forest, doubts = grow(raw)
        marked.append(raw)
        forests.append(forest)
        doubted = (f for f in (*raw.findings, *inferred, *doubts) if run < count or f.severity is not Severity.INFO)
        findings += [_of_run(f, run) for f in doubted]
    raws = marked
    zeros[:count], of_clocks = clock.compare_clocks(raws[:count], forests[:count], zeros[:count], align=align_clocks)
    if align_clocks:
        clock.check_extent(raws, zeros, paths)
    findings = [*clock.still_true(findings, of_clocks), *of_clocks]
    source = _common_source([*forests[count:], *forests[:count]], layer_source)
    layerings = [lay(forest, source) for forest in forests]
    replays = []
    for run in range(count):
        paired, doubts = pair_replays(run, raws, forests, layerings, paths)
        replays.append(paired)
        findings += [_of_run(f, run) for f in doubts]
    attributed = attribute(raws, forests, layerings, source, replays)
    kept = {run: spans_of_capture(forests[run]) for run in range(count, len(raws))}
    calls = layers.with_index(
        [_calls(run, raw, forests, layerings[run], kept.get(run), attributed) for run, raw in enumerate(raws)], source
    )
    height = forests[0].spans.height
    builder = TraceBuilder(height if len(forests) == 1 and height >= limits().spilled_min_spans else None)
    builder.note((*noted, *findings))
    first_ids = [0, *itertools.accumulate(forest.spans.height for forest in forests)]
    for run, raw in enumerate(raws):
        forest, layering, called = forests.pop(0), layerings.pop(0), calls.pop(0)
        facts = overrides if run < count else replace(overrides, role=GRAPH_CAPTURE)
        builder.add("runs", run_row(run, raw.facts, sources[run], zeros[run], _level(source, forest), facts))
        if run >= count:
            _add_capture(builder, run, raw, forest, layering, called, zeros[run], kept[run], first_ids[run])
            continue
        _add_devices(builder, run, raw, overrides)
        builder.add("step_times", _step_times(run, overrides))
        described = {} if run else overrides.results  # a description is of one run; files of several ranks share it
        for name, rows in (raw.facts.results or described).items():
            builder.add(name, rows.with_columns(run_id=pl.lit(run, pl.Int64)))
        _add_spans(builder, run, forest, layering, zeros[run], first_ids, attributed[run])
        _add_details(
            builder, raw, forest, called, first_ids[run], _captured_ids(forest, attributed[run], run, first_ids)
        )
        _add_attributions(builder, attributed[run], first_ids, run)
        owners = _reference(forest.allocations["owner"].to_numpy(), first_ids[run])
        del forest, layering, called  # of a large trace some hundred MB
        _add_allocations(builder, run, raw.tables["allocations"], owners, zeros[run])
        _add_moments(builder, run, raw, zeros[run])
        faults = raw.tables["page_faults"].with_columns(zeros[run].since(pl.col("time_ns")))
        builder.add("page_faults", faults.with_columns(run_id=pl.lit(run, pl.Int64)))
    return builder.build()


def _calls(
    run: int,
    raw: RawTrace,
    forests: Sequence[Forest],
    layering: Layering,
    kept: Bools | None,
    attributed: Sequence[Attributed],
) -> pl.DataFrame:
    """The calls of layers; `kept`: of a capture which of its spans are."""
    forest = forests[run]
    calls = layers.with_recorded(layers.calls(forest, layering), forest.spans, raw.tables["layers"])
    if kept is None:
        return layers.with_compiled(calls, attributed[run].rows)
    return replayed_first(calls.filter(pl.Series(kept[calls["at"].to_numpy()])), run, attributed, forests)


def _of_run(finding: Finding, run: int) -> Finding:
    return Finding(
        finding.kind, finding.detail, finding.count, finding.severity, finding.duration_ns, finding.advice, run
    )


def _common_source(forests: Sequence[Forest], requested: str) -> LayerSource:
    """One source for all runs: that of the first run that has layers."""
    for forest in forests:
        source = choose_source(forest, requested)
        if source is not LayerSource.NONE:
            return source
    return LayerSource.NONE


def _level(source: LayerSource, forest: Forest) -> tuple[str, LayerSource]:
    """The deepest level recorded, and where the layers are from."""
    if forest.is_level(Level.KERNEL).any():
        return "MLG", source
    return ("ML" if layer_spans(forest, source).any() else "M"), source


def run_row(
    run: int, facts: RunFacts, source: Source, zero: Zero, level: tuple[str, LayerSource], overrides: RunOverrides
) -> pl.DataFrame:
    """The row of `runs`: overrides go before what the file says."""
    row = {
        "run_id": run,
        "rank": facts.rank if overrides.rank is None else overrides.rank,
        "world_size": overrides.world_size or facts.world_size,
        "level_captured": overrides.level or level[0],
        "profiler": facts.profiler,
        "format": source.format,
        "framework": overrides.framework or facts.framework,
        "model": overrides.model or facts.model,
        "batch_size": overrides.batch_size or facts.batch_size,
        "role": overrides.role or facts.role,
        "counters": json.dumps(list(overrides.counters)) if overrides.counters else None,
        "warmup_steps": overrides.warmup_steps,
        "device_name": overrides.device_name or facts.device_name,
        "serialised": facts.serialised if overrides.serialised is None else overrides.serialised,
        "layer_source": str(level[1]),
        "epoch_ns": zero.epoch_ns,
        "clock_origin_ns": zero.origin_ns,
        "source_path": readable(source.path),
        "source_sha256": source.sha256,
        "source_bytes": source.bytes,
    }
    return pl.DataFrame({name: [value] for name, value in row.items()})


def _step_times(run: int, overrides: RunOverrides) -> pl.DataFrame:
    durations = list(overrides.step_durations_ns)
    columns = {"run_id": [run] * len(durations), "step": list(range(len(durations))), "duration_ns": durations}
    return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Int64))


def _add_devices(builder: TraceBuilder, run: int, raw: RawTrace, overrides: RunOverrides) -> None:
    """The devices with their peak rates: overridden, from the file, or from the table of devices."""
    used = raw.tables["spans"]["device_id"].drop_nulls().unique()
    devices = with_used(raw.tables["devices"], used, overrides.device_name)
    devices, peak_rows = fill(devices, raw.tables["peaks"], user_peaks=overrides.peaks)
    for name, rows in (("devices", devices), ("peaks", peak_rows)):
        builder.add(name, rows.with_columns(run_id=pl.lit(run, pl.Int64)))
    if raw.tables["metrics"].height:  # without counters nothing is held against a peak
        builder.note(_of_run(finding, run) for finding in unknown(devices))


def _reference(references: Positions, first_id: int) -> pl.Series:
    if first_id:
        references = references.astype(np.int64)
        references[references >= 0] += first_id
    return nullable_index(references)


def _span_rows(
    run: int, forest: Forest, layering: Layering, zero: Zero, first_id: int, some: tuple[int, int]
) -> pl.DataFrame:
    """Rows of `spans` for some of a run's; layers of other runs are not among them."""
    first, end = some
    of_layer = tuple(Attribution).index(Attribution.LAYER)
    attribution, layer = layering.attribution[first:end], layering.layer[first:end]
    owned = np.where((attribution < 0) | (attribution == of_layer), layer, layer.dtype.type(-1))
    spans = forest.spans.slice(first, end - first).drop("row", "issued_by_row")
    return spans.with_columns(
        *zero.on_spans(),
        pl.int_range(first_id + first, first_id + end, eager=True).alias("span_id"),
        _reference(forest.parent[first:end], first_id).alias("parent_id"),
        pl.lit(run, pl.Int64).alias("run_id"),
        layering.phases(first, end),
        _reference(owned, first_id).alias("layer_id"),
        layering.attributions(first, end),
        pl.Series("ambiguous", forest.ambiguous[first:end]),
    )


def _add_spans(
    builder: TraceBuilder,
    run: int,
    forest: Forest,
    layering: Layering,
    zero: Zero,
    first_ids: Sequence[int],
    attributed: Attributed,
) -> None:
    weightiest = attributed.weightiest()
    elsewhere = weightiest.filter(pl.col("layer_run") != run)
    at, layer = elsewhere["at"].to_numpy(), _layer_ids(elsewhere, first_ids).to_numpy()

    def rows(first: int, end: int) -> pl.DataFrame:
        spans = _span_rows(run, forest, layering, zero, first_ids[run], (first, end))
        low, high = np.searchsorted(at, (first, end))
        if high == low:
            return spans
        ids = spans["layer_id"].cast(pl.Int64).scatter(at[low:high] - first, layer[low:high])
        return spans.with_columns(ids)

    builder.add_pieces("spans", forest.spans.height, rows)


def _layer_ids(rows: pl.DataFrame, first_ids: Sequence[int]) -> pl.Series:
    """The span ids of the layers that these rows name by run and position."""
    return rows["layer"] + pl.Series(first_ids, dtype=pl.Int64).gather(rows["layer_run"])


def _add_attributions(builder: TraceBuilder, attributed: Attributed, first_ids: Sequence[int], run: int) -> None:
    rows = attributed.rows

    def piece(first: int, end: int) -> pl.DataFrame:
        some = rows.slice(first, end - first)
        identity = (pl.col("at") + first_ids[run]).alias("span_id")
        return some.select(identity, _layer_ids(some, first_ids).alias("layer_id"), "weight", "basis")

    builder.add_pieces("attributions", rows.height, piece)


def _add_capture(
    builder: TraceBuilder,
    run: int,
    raw: RawTrace,
    forest: Forest,
    layering: Layering,
    calls: pl.DataFrame,
    zero: Zero,
    kept: Bools,
    first_id: int,
) -> None:
    """What the host did while it captured graphs; it belongs to no step."""
    spans = _span_rows(run, forest, layering, zero, first_id, (0, forest.spans.height))
    inside = pl.Series(kept)
    ids = spans["span_id"].filter(inside).implode()
    references = (pl.when(pl.col(c).is_in(ids)).then(pl.col(c)).alias(c) for c in ("parent_id", "layer_id"))
    builder.add("spans", spans.filter(inside).with_columns(*references, pl.lit(None, pl.Int64).alias("step")))
    identity = (pl.col("at") + first_id).alias("span_id")
    builder.add("layers", calls.with_columns(identity).drop("at"))
    at = forest.operators["at"].to_numpy()
    operators = with_forward_lines(forest).filter(pl.Series(kept[at]))
    builder.add("operators", operators.select(identity, "sequence_number", "external_id", *_INPUTS))
    ranges = at_spans(forest.spans, raw.tables["ranges"]).drop("row")
    builder.add("ranges", ranges.filter(pl.Series(kept[ranges["at"].to_numpy()])).with_columns(identity).drop("at"))


def _captured_ids(forest: Forest, attributed: Attributed, run: int, first_ids: Sequence[int]) -> Ints | None:
    """For each span the id of the one that its graph node was captured in (-1: none); None: as the forest says."""
    captured = attributed.captured
    if captured.is_empty():
        return None
    out = np.where(forest.captured_in >= 0, forest.captured_in.astype(np.int64) + first_ids[run], -1)
    out[captured["at"].to_numpy()] = captured["launch"].to_numpy() + np.array(first_ids)[captured["run"].to_numpy()]
    return out


def _add_details(
    builder: TraceBuilder,
    raw: RawTrace,
    forest: Forest,
    calls: pl.DataFrame,
    first_id: int,
    captured_ids: Ints | None,
) -> None:
    """`captured_ids`: ids that go before `forest.captured_in`."""
    identity = (pl.col("at") + first_id).alias("span_id")
    calls = calls.sort("at")
    builder.add_pieces(
        "layers", calls.height, lambda first, end: calls.slice(first, end - first).with_columns(identity).drop("at")
    )

    facts = with_forward_lines(forest)

    def operators(first: int, end: int) -> pl.DataFrame:
        rows = facts.slice(first, end - first)
        twin = _reference(forest.twin[rows["at"].to_numpy()], first_id).alias("forward_id")
        return rows.select(identity, "sequence_number", twin, "external_id", *_INPUTS)

    builder.add_pieces("operators", facts.height, operators)
    for name in ("ranges", "kernels", "copies", "collectives", "messages", "compiled_kernels"):
        table = at_spans(forest.spans, raw.tables[name]).drop("row")

        def rows(first: int, end: int, table: pl.DataFrame = table) -> pl.DataFrame:
            part = table.slice(first, end - first)
            if "captured_in_row" in part.columns:
                at = part["at"].to_numpy()
                captured = (
                    _reference(forest.captured_in[at], first_id)
                    if captured_ids is None
                    else nullable_index(captured_ids[at])
                )
                part = part.with_columns(captured.alias("captured_in_id")).drop("captured_in_row")
            return part.with_columns(identity).drop("at")

        builder.add_pieces(name, table.height, rows)
    builder.add("metrics", at_spans(forest.spans, raw.tables["metrics"]).with_columns(identity).drop("row", "at"))


def _add_allocations(builder: TraceBuilder, run: int, memory: pl.DataFrame, owners: pl.Series, zero: Zero) -> None:
    """Blocks given out and taken back; `owners`: the span that held each of those with a size."""
    blocks = memory.filter(pl.col("bytes").is_not_null()).with_columns(owners.alias("owner_id")).drop("thread_id")
    rows = blocks.sort("time_ns", maintain_order=True).with_columns(
        zero.since(pl.col("time_ns")),
        run_id=pl.lit(run, pl.Int64),
        sequence=pl.int_range(pl.len(), dtype=pl.Int64),
    )
    builder.add_pieces("allocations", rows.height, lambda first, end: rows.slice(first, end - first))


def _add_moments(builder: TraceBuilder, run: int, raw: RawTrace, zero: Zero) -> None:
    """What was sampled, and memory in use: a series after the other, which spares a large trace a sort of all."""
    memory, sampled = raw.tables["allocations"], raw.tables["counters"]
    series = [
        memory.select("time_ns", "device_id", pl.col(name).cast(pl.Float64).alias("value"))
        .drop_nulls("value")
        .sort("device_id", "time_ns", "value", nulls_last=True)
        .with_columns(counter=pl.lit(name, pl.Categorical), unit=pl.lit("byte", pl.Categorical))
        for name in ("allocated_bytes", "reserved_bytes")
    ]
    if sampled.height:
        order = pl.col("counter").cast(pl.String), "device_id", "time_ns", "value"
        labels = pl.col("counter", "unit").cast(pl.Categorical)  # in a large table they are an Enum
        both = pl.concat([*series, sampled.select(series[0].columns).with_columns(labels)])
        series = [both.sort(order, nulls_last=True)]

    def rows(first: int, end: int) -> pl.DataFrame:
        parts = []
        for each in series:
            parts.append(each.slice(max(first, 0), max(end - max(first, 0), 0)))
            first, end = first - each.height, end - each.height
        return pl.concat(parts).with_columns(zero.since(pl.col("time_ns")), run_id=pl.lit(run, pl.Int64))

    builder.add_pieces("counters", sum(each.height for each in series), rows)
