"""Steps of a server, every answer worked out on paper; see `tests.helpers.serving_trace` for the 30 steps."""

from __future__ import annotations

from pathlib import Path
from random import Random

import polars as pl
import pytest

from tests.helpers.linked import converted
from tests.helpers.serving_trace import BATCHES, served, serving_trace
from tests.helpers.synth import KinetoTrace
from tests.helpers.synth_nsys import PROCESS, NsightFile
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.findings import advise
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import Trace, XspError

MS = 1_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return serving_trace(tmp_path_factory.mktemp("server"))


def answer(trace: Trace, analysis: str, steps: str | None = None, phase: str | None = None) -> pl.DataFrame:
    return run(find(analysis), StepView.of(trace, steps, phase)).table


def test_each_step_has_what_its_name_says_and_how_long_it_took(server: Trace) -> None:
    steps = answer(server, "B20")
    counts = steps.select("prefill_requests", "prefill_tokens", "decode_requests", "duration_ns").rows()
    assert counts == [(prefill, tokens, decode, 1_000 * us) for prefill, tokens, decode, us in BATCHES]
    assert steps["step"].to_list() == list(range(30))
    assert steps["requests"].to_list() == [prefill + decode for prefill, _, decode, _ in BATCHES]
    assert steps["tokens"].to_list() == [tokens + decode for _, tokens, decode, _ in BATCHES]
    assert steps["gap_ns"].to_list() == [2 * MS] * 29 + [None]


def test_the_steady_state_lies_between_ramp_up_and_drain(server: Trace) -> None:
    # Decoding requests: 0, 8, 16, 24, then 32 or 31, then 24 and fewer; 90 % of 32 are 28.8.
    assert answer(server, "B20")["state"].to_list() == ["ramp_up"] * 4 + ["steady"] * 20 + ["drain"] * 6


def test_a_step_is_prefill_decode_or_mixed_by_its_requests(server: Trace) -> None:
    phases = answer(server, "B20")["serving_phase"].to_list()
    assert phases[:5] == ["prefill", "mixed", "mixed", "mixed", "decode"]
    assert [step for step, phase in enumerate(phases) if phase == "mixed"] == [1, 2, 3, 12, 18]


def test_a_step_has_its_rate_its_time_per_output_token_and_its_device(server: Trace) -> None:
    columns = ("token_per_s", "output_token_ns", "device_busy_share", "exposed_host_ns")
    rows = answer(server, "B20").select(columns).rows()
    assert rows[0] == (8_000 / 0.040, None, 38.5 / 40, 1.5 * MS)  # nobody waits for an output token
    assert rows[4] == (32 / 0.010, 10 * MS, 8.5 / 10, 1.5 * MS)
    assert rows[12] == pytest.approx((1_031 / 0.015, 15 * MS, 13.5 / 15, 1.5 * MS))  # they wait for the prompt as well


def test_a_phase_in_sum_is_of_the_steady_state(server: Trace) -> None:
    rows = {row["serving_phase"]: row for row in answer(server, "B25").to_dicts()}
    assert list(rows) == ["decode", "mixed", "prefill"]
    decode, mixed, prefill = rows.values()
    assert (decode["step_count"], decode["left_out_count"], decode["tokens"]) == (18, 6, 18 * 32)
    assert (decode["duration_ns"], decode["time_share"], decode["requests"]) == (180 * MS, 180 / 210, 32)
    assert (decode["token_per_s"], decode["output_token_ns"]) == (576 / 0.180, 10 * MS)
    assert (mixed["step_count"], mixed["left_out_count"], mixed["tokens"]) == (2, 3, 2 * 1_031)
    assert (mixed["median_ns"], mixed["p95_ns"], mixed["output_token_ns"]) == (15 * MS, 15 * MS, 15 * MS)
    assert mixed["device_busy_share"] == pytest.approx(27 / 30)
    assert mixed["exposed_host_share"] == pytest.approx(3 / 30)
    assert (prefill["step_count"], prefill["left_out_count"], prefill["duration_ns"]) == (0, 1, None)


def test_time_per_output_token_counts_a_step_as_often_as_requests_wait_in_it(tmp_path: Path) -> None:
    trace = serving_trace(tmp_path, [(0, 0, 30, 10_000), (0, 0, 10, 6_000)])  # too few to tell a steady state
    (decode,) = answer(trace, "B25").to_dicts()
    assert (decode["step_count"], decode["left_out_count"]) == (2, 0)
    assert decode["output_token_ns"] == (30 * 10 + 10 * 6) / 40 * MS


def test_steps_of_several_tokens_a_request_have_no_time_per_output_token(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    for index, name in enumerate(("step[TARGET_VERIFY bs=4]", "step[TARGET_VERIFY bs=4 g_sq=16 g_sk=99]")):
        kineto.annotation(name, index * 10 * MS, 9 * MS)
        kineto.launch("verify", index * 10 * MS + 1_000, index * 10 * MS + 10_000, 8 * MS)
    steps = answer(converted(kineto, tmp_path), "B20")
    assert steps.select("serving_phase", "tokens", "kv_tokens", "output_token_ns").rows() == [
        ("decode", None, None, None),
        ("decode", 16, 99, None),
    ]


def test_a_step_that_the_user_chose_around_two_batches_adds_their_tokens(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.annotation("request", 0, 20 * MS)
    for index, name in enumerate(("execute_context_2(900)_generation_0(0)", "execute_context_0(0)_generation_2(2)")):
        kineto.annotation(name, index * 10 * MS, 9 * MS)
        kineto.launch("gemm", index * 10 * MS + 1_000, index * 10 * MS + 10_000, 8 * MS)
    trace = converted(kineto, tmp_path, model_ranges=("^request$",))  # type: ignore[arg-type]
    (row,) = answer(trace, "B20").to_dicts()
    assert (row["serving_phase"], row["requests"], row["tokens"], row["decode_tokens"]) == ("mixed", None, 902, 2)
    assert row["annotation"] == "2 batches, execute_context_2(900)_generation_0(0) the first"


def test_names_of_nvtx_ranges_are_read_too(tmp_path: Path) -> None:
    # TensorRT-LLM under Nsight Systems, in two processes of one job: each names the batch that they compute together.
    export = NsightFile()
    for process in (PROCESS, PROCESS + 1):
        for index, name in enumerate(
            ("1 ctx reqs, 8192 ctx tokens, 0 gen reqs", "0 ctx reqs, 0 ctx tokens, 64 gen reqs")
        ):
            start = (1 + 10 * index) * MS
            thread = process  # a process's first thread has its number
            export.range(
                start, start + 9 * MS, f"[Executor] _forward_step {index + 41}: {name}", process=process, thread=thread
            )
            call, work = (start + 1_000, start + 6_000), (start + 10_000, start + 8 * MS)
            export.launch(call, work, process=process, thread=thread)
    trace = convert([export.write(tmp_path / "server.sqlite")], Options())
    steps = answer(trace, "B20").select("step", "serving_phase", "requests", "tokens", "decode_tokens")
    assert steps.rows() == [(41, "prefill", 1, 8_192, 0), (42, "decode", 64, None, None)]


@pytest.mark.parametrize("seed", range(3))
def test_neither_the_order_of_events_nor_the_origin_of_time_matters(server: Trace, tmp_path: Path, seed: int) -> None:
    kineto = served()
    Random(seed).shuffle(kineto.events)  # noqa: S311 (nothing to keep secret)
    for event in kineto.events:
        event["ts"] = int(str(event["ts"])) + seed * 1_000_003
    other = converted(kineto, tmp_path)
    for analysis in ("B20", "B25"):
        assert answer(other, analysis).equals(answer(server, analysis))


def test_phases_divide_the_steps(server: Trace) -> None:
    parts = [answer(server, "B20", None, phase) for phase in ("prefill", "mixed", "decode")]
    assert pl.concat(parts).sort("step").equals(answer(server, "B20"))


@pytest.mark.parametrize(
    ("phase", "kernel", "steps", "attention_ms"),
    [
        ("prefill", "flash_attention_prefill", 1, 15.4),  # 40 % of 38.5
        ("mixed", "flash_attention_mixed", 3, 5.4),  # 15, 15 and 46 ms: the two before are ramp-up; the median of three
        ("decode", "paged_attention_decode", 24, 3.325),  # 2/5 of the latency less 1.5 ms, its trimmed mean 9.8125 ms
    ],
)
def test_an_analysis_of_a_phase_is_of_its_steps(
    server: Trace, phase: str, kernel: str, steps: int, attention_ms: float
) -> None:
    result = run(find("A10"), StepView.of(server, serving_phase=phase))
    rows = {row["kernel_name"]: row["duration_ns"] for row in result.table.to_dicts()}
    assert rows == pytest.approx({kernel: attention_ms * MS, "nvjet_tst_128x256_64x4": attention_ms * 1.5 * MS})
    assert (result.provenance["serving_phase"], result.provenance["step_count"]) == (phase, steps)


def test_a_phase_goes_with_a_step_and_with_each(server: Trace) -> None:
    assert answer(server, "A15", "each", "mixed")["step"].unique(maintain_order=True).to_list() == [1, 2, 3, 12, 18]
    assert answer(server, "B20", "12", "mixed")["step"].to_list() == [12]
    assert answer(server, "B20", None, "mixed")["step"].to_list() == [1, 2, 3, 12, 18]


@pytest.mark.parametrize(
    ("steps", "phase", "error"),
    [
        (None, "warmup", "'warmup' is no phase of serving"),
        (None, "diffusion", "the trace has no diffusion steps"),
        ("12", "decode", "the trace has no decode step 12"),
        ("all", "decode", "--steps all takes the trace as one"),
    ],
)
def test_a_phase_that_cannot_be_taken_is_told_in_a_sentence(
    server: Trace, steps: str | None, phase: str, error: str
) -> None:
    with pytest.raises(XspError, match=error):
        StepView.of(server, steps, phase)


def test_a_trace_of_no_server_has_no_phases(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.step(0, 0, 10_000)
    trace = converted(kineto, tmp_path)
    with pytest.raises(XspError, match="no serving steps"):
        StepView.of(trace, serving_phase="decode")
    with pytest.raises(XspError, match=r"B20 .* needs steps that a serving engine named"):
        answer(trace, "B20")


def test_prefills_before_decoding_are_no_ramp_up_of_the_mean_step(server: Trace) -> None:
    frames = StepView.of(server)
    left_out = frames.worked_steps.join(frames.steps, on="step", how="anti")["step"].to_list()
    assert left_out == [1, 2]  # of the mixed steps, 42 and 44 ms before 46, 15 and 15


def test_steps_of_other_batches_are_not_uneven(server: Trace) -> None:
    assert "uneven-steps" not in [one.rule.id for one in advise(StepView.of(server))]


def test_steps_of_one_batch_may_be_uneven(tmp_path: Path) -> None:
    slow = [(0, 0, 32, 10_000 if index % 2 else 20_000) for index in range(20)]
    advice = {one.rule.id: one for one in advise(StepView.of(serving_trace(tmp_path, [(8, 8_000, 0, 40_000), *slow])))}
    assert advice["uneven-steps"].observation.gain_ns == pytest.approx(5 * MS * 20 / 21)


_LOAD = Path(__file__).parents[3] / "fixtures/serving_load/vllm_synthetic/result.json"


def test_b48_sets_what_clients_waited_beside_the_servers_steps(tmp_path: Path) -> None:
    """Prompts: 8 each in steps of 40, 42, 44 and 46 ms, 1 each in two of 15 ms; 5 tokens a request on average."""
    (tmp_path / "trace.json").write_bytes(served().to_bytes())
    trace = convert([_LOAD, tmp_path / "trace.json"], Options())
    table = run(find("B48"), StepView.of(trace)).table
    assert table["part"].to_list() == ["request", "first token", "further token"]
    first = (8 * (40 + 42 + 44 + 46) + 2 * 15) / 34
    decoding = [(batch[2], batch[3]) for batch in BATCHES]
    further = sum(n * us for n, us in decoding) / sum(n for n, _ in decoding) / 1000
    server = [first + 4 * further, first, further]
    assert [ns / 1e6 for ns in table["server_ns"]] == pytest.approx(server)
    assert [ns / 1e6 for ns in table["client_ns"]] == pytest.approx([128.75, 81.25, 11.875])
    assert (table["client_ns"] - table["server_ns"]).to_list() == pytest.approx(table["rest_ns"].to_list())
    assert (table["device_ns"] < table["server_ns"]).all()


def test_b48_of_a_client_alone_knows_nothing_of_the_server() -> None:
    table = run(find("B48"), StepView.of(convert([_LOAD], Options()))).table
    assert table.select("server_ns", "device_ns", "rest_ns").null_count().row(0) == (3, 3, 3)
    assert table["client_p99_ns"].to_list() == pytest.approx([167.16e6, 119.1e6, 12.48e6], rel=1e-3)
