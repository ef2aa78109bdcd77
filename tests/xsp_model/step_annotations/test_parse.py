"""Names of serving steps: every form that an engine writes, and texts that none of them does."""

from __future__ import annotations

import pytest

from xsp_model.step_annotations import ServingPhase, StepAnnotation, parse_step_annotation
from xsp_model.step_annotations.parse import forms

_EXAMPLES = [(form.name, example) for form in forms() for example in form.examples]
_PREFILL, _DECODE, _MIXED = ServingPhase.PREFILL, ServingPhase.DECODE, ServingPhase.MIXED


def _read(text: str) -> StepAnnotation:
    annotation = parse_step_annotation(text)
    assert annotation is not None
    return annotation


@pytest.mark.parametrize(("form", "example"), _EXAMPLES)
def test_each_example_is_of_its_form_alone(form: str, example: str) -> None:
    assert _read(example).form == form
    assert [other.name for other in forms() if other.pattern.fullmatch(example)] == [form]


def test_each_form_says_where_it_is_defined() -> None:
    assert all(form.source.startswith("https://") and form.title and form.examples for form in forms())


def test_vllm_names_requests_and_tokens_of_both_sides() -> None:
    assert _read("execute_context_2(6144)_generation_3(3)") == StepAnnotation(
        tool="vLLM",
        form="vllm",
        serving_phase=_MIXED,
        requests=5,
        prefill_requests=2,
        decode_requests=3,
        tokens=6147,
        prefill_tokens=6144,
        decode_tokens=3,
        batch_key=6147,
    )


def test_vllm_in_detail_has_the_keys_that_attention_reads_and_the_padded_batch() -> None:
    text = "execute_6272_context_2(sq6144sk7144sqsq20971520sqsk23019520)_generation_3(sq3sk6144sqsq3sqsk6144)"
    assert _read(text) == StepAnnotation(
        tool="vLLM",
        form="vllm_detailed",
        serving_phase=_MIXED,
        requests=5,
        prefill_requests=2,
        decode_requests=3,
        tokens=6147,
        prefill_tokens=6144,
        decode_tokens=3,
        kv_tokens=13288,
        prefill_kv_tokens=7144,
        decode_kv_tokens=6144,
        tokens_squared=20971523,
        prefill_tokens_squared=20971520,
        decode_tokens_squared=3,
        tokens_by_kv_tokens=23025664,
        prefill_tokens_by_kv_tokens=23019520,
        decode_tokens_by_kv_tokens=6144,
        padded_tokens=6272,
        batch_key=6272,
    )


@pytest.mark.parametrize(
    ("text", "phase", "prefill", "decode"),
    [
        ("execute_context_2(6144)_generation_0(0)", _PREFILL, 2, 0),
        ("execute_context_0(0)_generation_64(64)", _DECODE, 0, 64),
        ("execute_context_0(0)_generation_0(0)", None, 0, 0),
        ("step[EXTEND bs=15 toks=15360]", _PREFILL, 15, 0),
        ("step[DECODE bs=32]", _DECODE, 0, 32),
        ("step[MIXED bs=2]", _MIXED, None, None),
        ("step[MIXED bs=66 c=2 g=64 c_sq=2048 g_sq=64]", _MIXED, 2, 64),
        ("step[TARGET_VERIFY bs=8]", _DECODE, 0, 8),
        ("step[DRAFT_EXTEND_V2 bs=8]", _DECODE, 0, 8),
        ("step[SPLIT_PREFILL bs=3]", _PREFILL, 3, 0),
        ("step[IDLE bs=0]", None, None, None),
        ("step[DLLM_EXTEND bs=3]", None, None, None),
        ("step[idle]", None, None, None),
        ("step[mixed bs=9 ext=512 dec=8]", _MIXED, None, 8),
        ("prefill[bs=2 tok=14721 ctx=[7803, 6918]]", _PREFILL, 2, 0),
        ("decode[bs=64 tok=64 d=64]", _DECODE, 0, 64),
        ("decode[bs=64]", _DECODE, 0, 64),
        ("decode[bs=128 tok=384 p=2 d=126 spec=3]", _MIXED, 2, 126),
        ("eager_decode[bs=32 tok=32 ctx=[512, 512, 512]...+29]", _DECODE, 0, 32),
        ("[Executor] _forward_step 7: 0 ctx reqs, 64 gen reqs", _DECODE, 0, 64),
        ("[Executor] _forward_step: 2 ctx reqs, 0 gen reqs", _PREFILL, 2, 0),
        ("[Executor] _forward_step 9: 1 ctx reqs, 8192 ctx tokens, 18 gen reqs", _MIXED, 1, 18),
    ],
)
def test_the_phase_is_by_whose_requests_are_in_the_batch(
    text: str, phase: ServingPhase | None, prefill: int | None, decode: int | None
) -> None:
    annotation = _read(text)
    assert (annotation.serving_phase, annotation.prefill_requests, annotation.decode_requests) == (
        phase,
        prefill,
        decode,
    )


@pytest.mark.parametrize(
    ("text", "tokens", "prefill", "decode"),
    [
        ("step[EXTEND bs=15 toks=15360]", 15360, 15360, 0),
        ("step[DECODE bs=32]", 32, 0, 32),  # one token a request, by the definition of the mode
        ("step[DECODE bs=64 g_sq=128 g_sqsq=256 g_sqsk=262144 g_sk=131072]", 128, 0, 128),
        ("step[TARGET_VERIFY bs=8]", None, 0, None),  # several a request, and the name does not say how many
        ("step[TARGET_VERIFY bs=8 g_sq=32 g_sqsq=128 g_sqsk=4096 g_sk=1024]", 32, 0, 32),
        ("step[DRAFT_EXTEND_V2 bs=8 c_sq=16 c_sqsq=32 c_sqsk=64 c_sk=1024]", 16, 0, 16),
        ("step[MIXED bs=66 c=2 g=64 c_sq=2048 c_sk=2048 g_sq=64 g_sk=65600]", 2112, 2048, 64),
        ("step[MIXED bs=2]", None, None, None),
        ("decode[bs=128 tok=384 p=2 d=126 spec=3]", 384, None, None),
        ("[Executor] _forward_step 9: 1 ctx reqs, 8192 ctx tokens, 18 gen reqs", None, 8192, None),
        ("[Executor] _forward_step 9: 1 ctx reqs, 8192 ctx tokens, 0 gen reqs", 8192, 8192, 0),
    ],
)
def test_tokens_that_the_name_does_not_say_are_unknown(
    text: str, tokens: int | None, prefill: int | None, decode: int | None
) -> None:
    annotation = _read(text)
    assert (annotation.tokens, annotation.prefill_tokens, annotation.decode_tokens) == (tokens, prefill, decode)


@pytest.mark.parametrize(
    ("text", "squared", "by_kv_tokens"),
    [
        ("step[DECODE bs=64 g_sq=128 g_sqsq=256 g_sqsk=262144 g_sk=131072]", 256, 262144),
        ("step[MIXED bs=66 c=2 g=64 c_sq=2048 c_sqsq=2097152 c_sqsk=2097152 g_sqsq=64 g_sqsk=65600]", 2097216, 2162752),
        ("step[DRAFT_EXTEND bs=8 c_sq=16 c_sqsq=32 c_sqsk=2048 c_sk=1024]", 32, 2048),
        ("prefill[bs=6 tok=17408 ctx=[4096]...+3 sqsq=59768832 sqsk=59768832 sk=17408 tbo=1]", 59768832, 59768832),
        ("step[MIXED bs=66 c=2 g=64 c_sqsq=2097152]", None, None),  # one side of two
        ("decode[bs=64 tok=64 d=64]", None, None),
    ],
)
def test_products_of_queries_and_keys_are_summed_over_both_sides(
    text: str, squared: int | None, by_kv_tokens: int | None
) -> None:
    annotation = _read(text)
    assert (annotation.tokens_squared, annotation.tokens_by_kv_tokens) == (squared, by_kv_tokens)


@pytest.mark.parametrize(
    ("text", "is_capture", "key"),
    [
        ("capture_8192_PIECEWISE", True, 8192),
        ("capture_32_FULL", True, 32),
        ("bs_32_rank0", True, 32),
        ("execute_context_0(0)_generation_30(30)", False, 30),
        ("step[DECODE bs=30]", False, 30),
        ("step[TARGET_VERIFY bs=8 g_sq=32]", False, 8),  # captured by requests, whatever tokens each has
        ("decode[bs=117/128 tok=117 d=117]", False, 128),
        ("execute_diffusion_1_256x256", False, 1),
    ],
)
def test_the_batch_key_is_the_size_by_which_the_engine_picks_a_graph(text: str, key: int, *, is_capture: bool) -> None:
    annotation = _read(text)
    assert (annotation.is_capture, annotation.batch_key) == (is_capture, key)
    assert not (is_capture and annotation.serving_phase)


def test_an_image_has_its_size() -> None:
    annotation = _read("execute_diffusion_2_512x256")
    assert (annotation.serving_phase, annotation.requests) == (ServingPhase.DIFFUSION, 2)
    assert (annotation.image_width, annotation.image_height) == (512, 256)


def test_an_iteration_keeps_its_number() -> None:
    assert _read("[Executor] _forward_step 12587: 0 ctx reqs, 18 gen reqs").iteration == 12587


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ProfilerStep#3",
        "aten::mm",
        "step[WARMUP bs=3]",  # no mode of SGLang's
        "step 3",
        "decode",
        "decode[]",
        "execute_context_1(2)_generation_3(4) more",
        "execute_context_1(2)_generation_3",
        "execute_context_\u0661(2)_generation_3(4)",  # digits of another script
        "execute_context_" + "9" * 5000 + "(1)_generation_1(1)",
        "decode[" + "bs=" * 500_000 + "]",
        "step[DECODE " + "a" * 1_000_000,
        "[" * 1_000_000,
    ],
)
def test_other_texts_are_no_step(text: str) -> None:
    assert parse_step_annotation(text) is None


@pytest.mark.parametrize("text", ["decode[bs=1 d=3/4]", "step[DECODE bs=x tool=1 form=2]", "decode[bs=1 bs=2]"])
def test_odd_fields_do_no_harm(text: str) -> None:
    assert _read(text).serving_phase is _DECODE
