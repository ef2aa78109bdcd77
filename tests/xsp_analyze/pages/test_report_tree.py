"""Whatever the trace, the tree of device time holds all of it, at every depth."""

from __future__ import annotations

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from xsp_analyze.frames.launch_paths import TimeTree, time_tree
from xsp_analyze.pages.report.figures import cut_tree
from xsp_analyze.trace.trace_view import TraceView
from xsp_model import Attribution, Kind, Level, Trace, TraceBuilder

_HOST = (
    (Level.LAYER, Kind.MODULE),
    (Level.OPERATOR, Kind.OPERATOR),
    (Level.RUNTIME, Kind.CALL),
)
_OUTSIDE = [str(a) for a in Attribution if a is not Attribution.LAYER]
_SCHEMA = {
    "span_id": pl.Int64, "parent_id": pl.Int64, "level": pl.String, "kind": pl.String, "name": pl.String,
    "start_ns": pl.Int64, "duration_ns": pl.Int64, "layer_id": pl.Int64, "attribution": pl.String,
}  # fmt: skip


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Host spans under any earlier ones, device work under any of them, in a layer or in none."""
    host = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 10), st.sampled_from("abc")), max_size=12))
    device = draw(
        st.lists(
            st.tuples(st.integers(-1, 11), st.integers(0, 1000), st.integers(0, 20), st.sampled_from("kl")), max_size=15
        )
    )
    rows: list[tuple[object, ...]] = []
    for i, (level, parent, name) in enumerate(host):
        above = parent if 0 <= parent < i else None
        rows.append((i, above, str(_HOST[level][0]), str(_HOST[level][1]), name, i, 5, None, None))
    layers = [i for i, (level, _, _) in enumerate(host) if level == 0]
    for j, (parent, duration, position, name) in enumerate(device):
        above = parent if 0 <= parent < len(host) else None
        layer = layers[position % len(layers)] if layers and position > 4 else None
        attribution = str(Attribution.LAYER) if layer is not None else _OUTSIDE[position % len(_OUTSIDE)]
        rows.append(
            (len(host) + j, above, str(Level.KERNEL), str(Kind.KERNEL), name, 50 + j, duration, layer, attribution)
        )
    return _built(rows, [(i, host[i][2]) for i in layers])


def _built(rows: list[tuple[object, ...]], layers: list[tuple[int, str]]) -> Trace:
    builder = TraceBuilder()
    builder.add("runs", pl.DataFrame({"run_id": [0], "clock_origin_ns": [0], "layer_source": ["module"]}))
    spans = pl.DataFrame(rows, schema=_SCHEMA, orient="row")
    builder.add("spans", spans.with_columns(pl.lit(0, pl.Int64).alias("run_id")))
    named = pl.DataFrame(layers, schema={"span_id": pl.Int64, "layer_name": pl.String}, orient="row")
    described = named.with_columns(
        layer_type="layer_name",
        source=pl.lit("module"),
        is_container=pl.lit(False),  # noqa: FBT003 (polars' signature)
    )
    builder.add("layers", described)
    return builder.build()


def _check(tree: TimeTree, time_ns: int, count: int) -> None:
    assert (int(tree.time_ns[0]), int(tree.count[0])) == (time_ns, count)
    for node in range(len(tree.parent)):
        below = [i for i, parent in enumerate(tree.parent) if parent == node]
        assert all(i > node for i in below)
        if below:
            assert sum(int(tree.time_ns[i]) for i in below) == int(tree.time_ns[node])
            assert sum(int(tree.count[i]) for i in below) == int(tree.count[node])


@settings(max_examples=examples(60))
@given(traces(), st.integers(1, 12))
def test_every_node_is_the_sum_of_its_children_cut_short_or_not(trace: Trace, max_nodes: int) -> None:
    work = trace.frame("spans").filter(pl.col("attribution").is_not_null())
    tree = time_tree(TraceView(trace))
    _check(tree, int(work["duration_ns"].sum()), work.height)
    _check(cut_tree(tree, max_nodes), int(work["duration_ns"].sum()), work.height)


@settings(max_examples=examples(30))
@given(traces())
def test_siblings_have_different_names_and_kinds(trace: Trace) -> None:
    tree = time_tree(TraceView(trace))
    keys = list(zip(tree.parent.tolist(), tree.kind, tree.name, strict=True))
    assert len(keys) == len(set(keys))
