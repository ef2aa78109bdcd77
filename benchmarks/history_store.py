"""Stores of made runs for `benchmarks.history`: what a trace of a fixture came to, with changes planted in it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp.history.adding import facts_with_identity
from xsp.history.store import file_of_run
from xsp.opening import load
from xsp.reading import Reading
from xsp_analyze.history.facts import Described

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp.history.store import Store

_TRACE = Path(__file__).parents[1] / "fixtures" / "torch_profiler" / "transformer_train_gpu_synthetic" / "trace.json.gz"
_START = datetime(2026, 1, 1, 2, tzinfo=UTC)
_NEW_DRIVER = 0.6  # of a series
_CLASS, _PART = "matrix product", "compute: matrix product"


def facts_of_fixture() -> pl.DataFrame:
    """What a history keeps of the fixture."""
    trace = load([str(_TRACE)], Reading(), lambda _: None)
    return facts_with_identity(trace, Described({}))[0]


def made_run(facts: pl.DataFrame, factor: float, noise: np.random.Generator, labels: dict[str, str]) -> pl.DataFrame:
    """The run, slower by the factor through its matrix products, each time with noise of its own (0.3 %)."""
    latency = _value(facts, "latency_ns")
    products = _value(facts, _PART)
    slower = (products + latency * (factor - 1)) / products
    is_time = pl.col("section").is_in(["part", "class", "layer_type", "layer", "operator", "kernel", "collective"])
    is_cause = pl.col("name").is_in([_CLASS, _PART])
    texts = {"model": labels.pop("model", "transformer"), "batch": "8", "branch": "main"}
    measured = pl.col("section") == "measure"
    others = facts.filter(~((pl.col("section") == "run") & pl.col("name").is_in(list(texts))))
    jitter = pl.Series(1 + noise.normal(size=others.height) * 0.003)
    rows = others.with_columns(pl.when(is_time).then(pl.col("value") * jitter).otherwise("value").alias("value"))
    rows = rows.with_columns(
        pl.when(is_time & is_cause)
        .then(pl.col("value") * slower)
        .when(measured & (pl.col("name") == "latency_ns"))
        .then(pl.col("value") * factor)
        .otherwise("value")
        .alias("value"),
        *(
            pl.when(measured & (pl.col("name") == "latency_ns")).then(pl.col(end) * factor).otherwise(end).alias(end)
            for end in ("low", "high")
        ),
    )
    texts_of_run = [*(("run", *each) for each in texts.items()), *(("label", *each) for each in labels.items())]
    heads = pl.DataFrame(
        texts_of_run, schema={"section": pl.String, "name": pl.String, "text": pl.String}, orient="row"
    )
    return pl.concat([heads, rows], how="diagonal").select(facts.columns)


def _value(facts: pl.DataFrame, name: str) -> float:
    return float(facts.filter(pl.col("name") == name, pl.col("section").is_in(["measure", "part"]))["value"][0])


def fill(
    store: Store, model: str, factors: Sequence[float], seed: int = 0, every: timedelta = timedelta(days=1)
) -> None:
    """A run a night, each slower than the fixture by its factor; commits by number, and late a new driver."""
    noise, facts = np.random.default_rng(seed), facts_of_fixture()
    for night, factor in enumerate(factors):
        labels = {
            "model": model,
            "commit": f"{seed:x}{night:06x}",
            "driver": "550.54" if night < len(factors) * 0.6 else "560.28",
        }
        run = made_run(facts, float(factor), noise, labels)
        content = file_of_run(run, f"{seed:04x}{night:012x}", _START + night * every)
        Path(store.location).mkdir(parents=True, exist_ok=True)
        Path(store.location, content[0]).write_bytes(content[1])
