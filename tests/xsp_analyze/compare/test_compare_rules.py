"""Rules that fail a build: what can be written, and when they are broken."""

from __future__ import annotations

import pytest

from tests.helpers.captures import Noise, Work, view
from xsp_analyze.compare.comparison import Comparison, compare
from xsp_analyze.compare.rules import Rule, RuleOutcome, Verdict, check, parse
from xsp_model import XspError

_NOISE = Noise(kernel=0.01, step=0.005)


@pytest.fixture(name="slower", scope="module")
def fixture_slower() -> Comparison:
    """Layer 11 of 12, of 240 us, takes 1.5 times as long: 120 us more."""
    return compare([view(Work(), 1, _NOISE)], [view(Work(slower={11: 1.5}), 2, _NOISE)])


def _held(text: str, comparison: Comparison, *, strict: bool = False) -> RuleOutcome:
    return check(parse(text), comparison, strict=strict)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model.latency > +3%", Rule("model.latency > +3%", "model", None, "latency", ">", 3.0, "%")),
        ("model.throughput<-5%", Rule("model.throughput<-5%", "model", None, "throughput", "<", -5.0, "%")),
        (
            'layer["layer3.*"].latency >= 1.1x',
            Rule('layer["layer3.*"].latency >= 1.1x', "layer", "layer3.*", "latency", ">=", 1.1, "x"),
        ),
        (
            " kernel [ '*gemm*' ] . time > +1ms ",
            Rule(" kernel [ '*gemm*' ] . time > +1ms ", "kernel", "*gemm*", "time", ">", 1.0, "ms"),
        ),
        ("kernel.count > 0", Rule("kernel.count > 0", "kernel", None, "count", ">", 0.0, "")),
        ("operator.time > 1e3ns", Rule("operator.time > 1e3ns", "operator", None, "time", ">", 1000.0, "ns")),
    ],
)
def test_what_a_rule_says(text: str, expected: Rule) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no rule"),
        ("model.latency", "is no rule"),
        ("model.latency > 3 %; import os", "is no rule"),
        ("__import__('os').system('true') > 1%", "is no rule"),
        ("modle.latency > 3%", "there is no 'modle'"),
        ("model.speed > 3%", "has no 'speed'"),
        ("model.latency > 3", "has no unit"),
        ("model.throughput < 3ms", "is no time"),
        ('model["x"].latency > 3%', "one model"),
        ("model.latency == 3%", "is no rule"),
    ],
)
def test_what_is_no_rule_is_told_in_a_sentence(text: str, message: str) -> None:
    with pytest.raises(XspError, match=message):
        parse(text)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ('layer["*Linear_11"].latency > +10%', Verdict.VIOLATED),
        ('layer["Linear_11"].latency > +10%', Verdict.VIOLATED),
        ('layer["Net_0.Linear_11"].latency > +10%', Verdict.VIOLATED),
        ('layer["*Linear_11"].latency > +60%', Verdict.KEPT),
        ('layer["*Linear_11"].latency > 1.4x', Verdict.VIOLATED),
        ('layer["*Linear_11"].latency > +100us', Verdict.VIOLATED),
        ('layer["*Linear_11"].latency > +1ms', Verdict.KEPT),
        ('layer["*Linear_3"].latency > +10%', Verdict.KEPT),
        ("layer.latency > +10%", Verdict.VIOLATED),
        ('kernel["gemm_1?"].time > +50us', Verdict.VIOLATED),
        ("kernel.count > 0", Verdict.KEPT),
        ("model.latency > +3%", Verdict.VIOLATED),
        ("model.latency < -3%", Verdict.KEPT),
        ("model.throughput < -3%", Verdict.VIOLATED),
        ("model.device_time > +3%", Verdict.VIOLATED),
    ],
)
def test_rules_go_by_the_rows_they_name(slower: Comparison, text: str, verdict: Verdict) -> None:
    assert _held(text, slower).verdict is verdict


def test_the_sentence_names_the_row_and_its_change(slower: Comparison) -> None:
    outcome = _held("layer.latency > +10%", slower)
    assert [row.name for row in outcome.rows] == ["Linear_11"]
    assert outcome.sentences[0].startswith("layer Linear_11: latency changed by +")


def test_a_change_that_noise_explains_breaks_a_rule_only_where_it_is_strict() -> None:
    loud = Noise(kernel=0.2, step=0.2)
    seeds = ((seed, compare([view(Work(steps=4), seed, loud)], [view(Work(steps=4), seed + 50, loud)]))
             for seed in range(20))  # fmt: skip
    comparison = next(c for _, c in seeds if (c.latency.ratio or 0) > 1.05 and not c.latency.significant)
    assert _held("model.latency > +3%", comparison).verdict is Verdict.INCONCLUSIVE
    assert _held("model.latency > +3%", comparison, strict=True).verdict is Verdict.VIOLATED


def test_a_rule_is_kept_only_where_the_whole_interval_keeps_it() -> None:
    noise = Noise(kernel=0.02, step=0.02)
    comparison = compare([view(Work(), 1, noise)], [view(Work(), 2, noise)])
    latency = comparison.latency
    assert latency.high is not None
    assert latency.ratio is not None
    beyond, within = ((latency.high - 1) * 100 + 1, ((latency.high + latency.ratio) / 2 - 1) * 100)
    assert _held(f"model.latency > {beyond:+f}%", comparison).verdict is Verdict.KEPT
    outcome = _held(f"model.latency > {within:+f}%", comparison)
    assert outcome.verdict is Verdict.INCONCLUSIVE
    assert f"to {(latency.high - 1) * 100:+.4g} %" in outcome.sentences[0]
    assert _held(f"model.latency > {within:+f}%", comparison, strict=True).verdict is Verdict.KEPT


def test_throughput_is_kept_by_the_other_end_of_latency_s_interval() -> None:
    noise = Noise(kernel=0.02, step=0.02)
    comparison = compare([view(Work(), 1, noise)], [view(Work(), 2, noise)])
    assert comparison.latency.high is not None
    lowest = (1 / comparison.latency.high - 1) * 100
    assert _held(f"model.throughput < {lowest - 0.1:+f}%", comparison).verdict is Verdict.KEPT
    assert _held(f"model.throughput < {lowest + 0.1:+f}%", comparison).verdict is Verdict.INCONCLUSIVE


def test_where_nothing_is_known_of_noise_no_rule_is_kept_by_the_estimate_alone() -> None:
    comparison = compare([view(Work(steps=1), 1)], [view(Work(steps=1, slower={11: 1.01}), 1)])
    outcome = _held("model.latency > +3%", comparison)
    assert outcome.verdict is Verdict.INCONCLUSIVE
    assert "nothing is known of its noise" in outcome.sentences[0]
    assert _held("model.latency > +3%", comparison, strict=True).verdict is Verdict.KEPT


def test_without_an_interval_the_estimate_breaks_a_rule_and_the_sentence_says_so() -> None:
    comparison = compare([view(Work(steps=1), 1)], [view(Work(steps=1, slower={11: 1.5}), 1)])
    outcome = _held("model.latency > +3%", comparison)
    assert outcome.verdict is Verdict.VIOLATED
    assert "nothing is known of its noise" in outcome.sentences[0]


def test_a_new_kernel_counts_with_all_its_time_and_has_no_change_in_percent() -> None:
    after = Work(kernels={3: ("gemm_3", "add", "new")})
    comparison = compare([view(Work(), 1)], [view(after, 1)])
    assert _held('kernel["new"].time > +10us', comparison).verdict is Verdict.VIOLATED
    assert _held('kernel["new"].count > 0', comparison).verdict is Verdict.VIOLATED
    assert _held('kernel["new"].time > +10%', comparison).verdict is Verdict.UNKNOWN


def test_a_pattern_that_matches_nothing_is_an_error_and_no_silent_pass(slower: Comparison) -> None:
    with pytest.raises(XspError, match=r"there is no layer 'conv\*' on either side. Names are such as"):
        _held('layer["conv*"].latency > +10%', slower)


def test_throughput_without_a_batch_size_cannot_be_asked_for() -> None:
    comparison = compare([view(Work(batch=0), 1)], [view(Work(batch=0), 2)])
    with pytest.raises(XspError, match="batch size"):
        _held("model.throughput < -3%", comparison)
