"""What a history keeps of one run, in one small table: what it was, what was measured, and what its step is made of."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.cohort.facts import facts_seen, in_one_text
from xsp_analyze.compare import levels
from xsp_analyze.compare.side import Side
from xsp_analyze.faults import attempt
from xsp_analyze.frames.device_time import busiest_device
from xsp_analyze.service import Answers
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from xsp_analyze.compare.levels import Measured
    from xsp_model import Trace

__all__ = [
    "CAUSES",
    "COLUMNS",
    "MEASURES",
    "SCHEMA_VERSION",
    "SERIES",
    "Described",
    "facts_of_run",
    "identity_of",
    "labels_in",
    "runs_of",
    "upgrade",
]

SCHEMA_VERSION = 1
"""Raised whenever a file written before could no longer be read as it stands; see `upgrade`."""

COLUMNS: Mapping[str, Any] = {
    "section": pl.String(),
    "name": pl.String(),
    "text": pl.String(),
    "value": pl.Float64(),
    "low": pl.Float64(),
    "high": pl.Float64(),
    "count": pl.Float64(),
}
"""Of every file: times in ns of a mean step, sizes in bytes, shares in 0..1; null: unknown."""

SERIES = ("model", "system", "batch", "phase", "branch")
"""What runs have in common that are held against each other; a label of that name says it where the trace does not."""

CAUSES = ("part", "class", "layer_type", "layer", "operator", "kernel", "collective")
"""Sections with times that may explain a change."""

MEASURES: Mapping[str, tuple[str, str]] = {
    "latency_ns": ("Step time", "ns"),
    "device_time_ns": ("Device time", "ns"),
    "busy_share": ("Device busy", "share"),
    "peak_memory_bytes": ("Memory peak", "byte"),
    "throughput_per_s": ("Throughput", "inputs/s"),
    "token_per_s": ("Tokens", "token/s"),
    "mfu": ("MFU", "share"),
    "energy_j": ("Energy of a step", "J"),
}
"""What is measured of each run, with its heading and unit."""

_MAX_ROWS = {"layer": 120, "kernel": 60, "operator": 60}
_MAX_FINDINGS = 12
_UNNAMED = "unnamed model"


@dataclass(frozen=True, slots=True)
class Described:
    """What the user says of a run: its labels, the steps of which serving phase are taken, and where its report is."""

    labels: Mapping[str, str] = field(default_factory=dict)
    serving_phase: str | None = None
    report: str | None = None


def identity_of(trace: Trace, serving_phase: str | None = None) -> str:
    """What no other run has: a digest of its sources' digests, or of its spans where these are not known."""
    digest = hashlib.sha256((serving_phase or "").encode())
    sources = trace.frame("runs")["source_sha256"]
    if sources.null_count() or sources.is_empty():
        spans = trace.scan("spans").select("name", "start_ns", "duration_ns").collect()
        digest.update(str(spans.select(pl.struct(pl.all()).hash().sum()).item()).encode())
    else:
        digest.update("\n".join(sources).encode())
    return digest.hexdigest()[:16]


def facts_of_run(trace: Trace, described: Described, versions: Mapping[str, str]) -> pl.DataFrame:
    """The rows of one run, in COLUMNS; what fails is left out, and noted. XspError where no latency is known."""
    answers = Answers(trace, described.serving_phase)
    side = Side("the run", [answers.per_step])
    measures = list(_measures(answers, side))
    if not any(row["name"] == "latency_ns" for row in measures):
        raise XspError(
            "the run has no latency, so there is nothing to follow over time",
            advice="Capture steps (ProfilerStep, --model-range), or give a run that was timed",
        )
    rows: list[dict[str, Any]] = [*_texts(answers, side, described, versions), *measures]
    makers: tuple[tuple[str, Callable[[], Iterator[dict[str, Any]]]], ...] = (
        ("What a step is made of", lambda: _parts(answers)),
        ("Times by level", lambda: _times(side)),
        ("Collectives", lambda: _collectives(answers)),
        ("Findings", lambda: _findings(answers)),
    )
    for what, make in makers:
        rows += attempt(what, lambda make=make: list(make()), lambda _: [])  # type: ignore[misc]
    return pl.DataFrame(rows, schema=dict(COLUMNS), orient="row")


def _texts(answers: Answers, side: Side, described: Described, versions: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """What was run, on what, by which versions; then the labels."""
    facts, labels, runs = side.facts, described.labels, answers.trace.frame("runs")
    values = {
        "model": facts.model,
        "system": facts_seen(answers.per_step, "").system or ("CPU" if not side.has_kernels else None),
        "batch": None if facts.batch_size is None else str(facts.batch_size),
        "phase": described.serving_phase,
        "precision": facts.precision,
        "framework": " ".join(filter(None, (facts.framework, facts.framework_version))) or None,
        "profiler": in_one_text(runs["profiler"]),
        "source": in_one_text(runs["source_path"]),
        "report": described.report,
        **versions,
    }
    # A part of the series that the trace does not say is what a label says; a model by its label goes first.
    for name in (*SERIES, *(key for key in values if key not in SERIES)):
        of_label = labels.get(name) if name == "model" or values.get(name) is None else None
        text = of_label or values.get(name) or (_UNNAMED if name == "model" else None)
        if text is not None:
            yield {"section": "run", "name": name, "text": text}
    for name, text in labels.items():
        yield {"section": "label", "name": name, "text": text}


def _measures(answers: Answers, side: Side) -> Iterator[dict[str, Any]]:
    """Latency with the interval of its steps and how many they are, then what else is measured."""
    model, of_model = side.model[0], answers.of_model()
    if (latency := float(model.mean_ns[0])) > 0:  # not of nan
        interval = {"low": of_model.get("low_ns"), "high": of_model.get("high_ns")}
        yield {"section": "measure", "name": "latency_ns", "value": latency, **interval, "count": model.steps.shape[1]}
    facts = facts_seen(answers.per_step, "")
    energy = answers.first("B14")
    values = {
        "device_time_ns": facts.kernel_duration_ns,
        "busy_share": facts.utilisation.gpu,
        "peak_memory_bytes": facts.peak_memory_bytes,
        "throughput_per_s": of_model.get("throughput_per_s"),
        "token_per_s": answers.first("B25").get("token_per_s"),
        "mfu": answers.first("B24").get("mfu"),
        "energy_j": energy.get("energy_j") if energy.get("scope") == "model" else None,
    }
    for name, value in values.items():
        if value is not None:
            yield {"section": "measure", "name": name, "value": float(value)}


def _parts(answers: Answers) -> Iterator[dict[str, Any]]:
    """What the busiest device did in a step: classes of work, and idle time by cause; they add up to its window."""
    timeline, parts = answers.of("B03"), answers.of("B42")
    if isinstance(timeline, str) or isinstance(parts, str) or not answers.per_step.of_trace.has_starts:
        return
    row = busiest_device(timeline.table)
    if row is None:
        return
    own = parts.table.filter(
        pl.col("run_id").eq_missing(row["run_id"]), pl.col("device_id").eq_missing(row["device_id"])
    )
    for part, name, time in own.select("part", "name", "duration_ns").iter_rows():
        yield {"section": "part", "name": f"{part}: {name}", "text": part, "value": time}


def _times(side: Side) -> Iterator[dict[str, Any]]:
    """Times by class, layer type, layer, operator and kernel: of a level the largest, and the sum of the others."""
    on_device = side.has_kernels
    sections: dict[str, Callable[[], Measured]] = {
        "layer_type": lambda: side.layer_types(by_family=False)[0],
        "layer": lambda: side.layers[0],
        "operator": lambda: side.operators(on_device=on_device)[0],
    }
    if on_device:
        sections |= {"class": lambda: side.kernel_classes[0], "kernel": lambda: side.kernels[0]}
    for section, make in sections.items():
        yield from _largest(section, attempt(f"Times by {section}", make, lambda _: None))


def _largest(section: str, measured: Measured | None) -> Iterator[dict[str, Any]]:
    if measured is None or measured.labels.is_empty():
        return
    names = measured.labels["layer_name"] if section == "layer" else measured.labels["key"].cast(pl.String)
    texts = measured.labels["layer_type"] if section == "layer" else pl.Series([None] * len(names), dtype=pl.String)
    rows = pl.DataFrame(
        {
            "name": names.str.strip_prefix(levels.KERNEL) if section == "kernel" else names,
            "text": texts,
            "value": measured.mean_ns,
            "count": measured.count,
        }
    )
    rows = rows.filter(pl.col("value").is_finite()).sort("value", descending=True, maintain_order=True)
    kept = _MAX_ROWS.get(section, rows.height)
    for row in rows.head(kept).iter_rows(named=True):
        yield {"section": section, **row}
    if rest := rows[kept:]["value"].sum():
        yield {"section": section, "name": "(others)", "value": rest}


def _collectives(answers: Answers) -> Iterator[dict[str, Any]]:
    result = answers.of("B08")
    if isinstance(result, str):
        return
    sums = result.table.group_by("operation", maintain_order=True).agg(pl.col("duration_ns", "count").sum())
    for name, time, count in sums.iter_rows():
        yield {"section": "collective", "name": str(name), "value": time, "count": count}


def _findings(answers: Answers) -> Iterator[dict[str, Any]]:
    for one in answers.advice[:_MAX_FINDINGS]:
        yield {"section": "finding", "name": one.rule.id, "text": one.rule.title, "value": one.gain_ns}


# Reading: files of earlier versions, and one row a run of many.

_UPGRADES: dict[int, Callable[[pl.DataFrame], pl.DataFrame]] = {}
"""For each earlier version the function that makes its rows those of the next one; none was written before 1."""


def upgrade(rows: pl.DataFrame, version: int) -> pl.DataFrame:
    """The rows of a file of this version or an earlier one, as of this version."""
    if not version <= SCHEMA_VERSION or any(step not in _UPGRADES for step in range(version, SCHEMA_VERSION)):
        raise pl.exceptions.SchemaError(f"no xsp wrote version {version}")
    for step in range(version, SCHEMA_VERSION):
        rows = _UPGRADES[step](rows)
    return rows


def runs_of(rows: pl.DataFrame) -> pl.DataFrame:
    """One row a run, in order of time: `run`, `time`, SERIES, versions, labels (`label.commit`), and MEASURES.

    `rows` have `run`, `time_ns` and `file` beside COLUMNS. Of latency there are interval and steps, too.
    """
    index = ["run", "time_ns"]
    keys = rows.select(*index, "file").unique("run", keep="first", maintain_order=True)
    section = pl.col("section")
    taken = [*index, "file", "time", *MEASURES, "latency_low_ns", "latency_high_ns", "steps"]
    texts = rows.filter(section == "run", ~pl.col("name").is_in(taken)).pivot(
        "name", index="run", values="text", aggregate_function="first"
    )
    labels = rows.filter(section == "label").with_columns(pl.lit("label.") + pl.col("name"))
    named = labels.pivot("literal", index="run", values="text", aggregate_function="first")
    is_measured = (section == "measure") & pl.col("name").is_in(list(MEASURES)) & pl.col("value").is_finite()
    measures = rows.filter(is_measured).pivot("name", index="run", values="value", aggregate_function="first")
    latency = rows.filter(section == "measure", pl.col("name") == "latency_ns").select(
        "run", latency_low_ns="low", latency_high_ns="high", steps="count"
    )
    joined = keys
    for part in (texts, named, measures, latency):
        joined = joined.join(part, on="run", how="left", maintain_order="left")
    texts_missing = [pl.lit(None, pl.String).alias(name) for name in SERIES if name not in joined.columns]
    missing = [pl.lit(None, pl.Float64).alias(name) for name in MEASURES if name not in joined.columns]
    time = pl.from_epoch("time_ns", time_unit="ns").alias("time")
    complete = joined.with_columns(*texts_missing, *missing, time).sort("time_ns", "run")
    others = sorted(set(complete.columns) - {*index, "file", "time", *SERIES, *MEASURES})
    return complete.select("run", "time", *SERIES, *MEASURES, *others, "file", "time_ns")


def labels_in(runs: pl.DataFrame) -> list[str]:
    """Columns of labels and versions: what may differ on both sides of a change."""
    return [name for name in runs.columns if name.startswith("label.") or name in _VERSIONS]


_VERSIONS = ("framework", "profiler", "precision", "xsp", "driver")
