"""Every rule, listed once, and what they find in a trace."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from xsp_analyze.faults import attempt
from xsp_analyze.findings import computing, confidence, host_alone, idle, ranks, roof, thresholds
from xsp_analyze.findings.advice import Advice
from xsp_analyze.findings.facts import Facts
from xsp_analyze.findings.simulated import with_gain_together, with_simulated_gains
from xsp_analyze.findings.verdict import HOST_BOUNDS, largest_part
from xsp_analyze.frames.device_time import busiest_device
from xsp_analyze.needs import holds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.findings.advice import Observation, Rule
    from xsp_analyze.trace.step_view import StepView

__all__ = ["ANYWHERE", "OF", "RULES", "advice_for", "advise"]

# What to do where the work is not PyTorch's, or it is not known whose it is.

ANYWHERE: Mapping[str, str] = {
    "unfused-attention": "Use one fused kernel of attention (FlashAttention, cuDNN's, Composable Kernel's).",
    "unfused-chains": "Fuse them: one kernel that does several steps reads and writes memory once.",
    "launch-bound": "Launch less: fuse small kernels, replay many with one call as a graph, give each more to do.",
    "host-sync": "Find what waits: synchronising calls, copies that block, values read back for the host to decide on."
    " Keep such values on the device and read them once in many iterations.",
    "data-wait": "Prepare input ahead, in other threads or processes; decode on the device or beforehand.",
    "pageable-copies": "Allocate the host memory pinned (cudaMallocHost, hipHostMalloc) and copy asynchronously.",
    "copies-in-step": "Copy on a stream of its own while others compute; keep what is used again on the device.",
    "memory-bound": "Compute in a smaller type, fuse kernels that pass data to each other, avoid copies of layout.",
    "optimizer-kernels": "Update many parameters with one kernel: a fused optimizer.",
    "recompilation": "Load and compile before what is measured: a first call as warm-up, code made for the device ahead"
    " of time (nvcc -gencode) instead of at the first launch, one module loaded once.",
    "few-steps": "Record at least five steps after warm-up, with a range around each (--model-range names them).",
    "dominant-kernel": "See what launches it, with which sizes. Try another algorithm, another precision, or a library"
    " made for it; measure counters with ncu to see what bounds it.",
    "far-from-peak": "Go down the list of operators by time to gain (B23): larger batches, dimensions that are"
    " multiples of 64, libraries that search for their fastest kernel, a narrower type.",
    "tail-waste": "Another tile size, split-K or a persistent kernel (stream-K); batches and sequence lengths whose"
    " blocks fill waves; independent work on a second stream.",
    "fp32-products": "Let the library compute products in a type of the tensor cores, if the accuracy allows.",
}
"""By rule: what to do whatever the framework."""
OF: Mapping[str, Mapping[str, str]] = {
    "jax": {
        "unfused-attention": "jax.nn.dot_product_attention(implementation='cudnn'), or a Pallas kernel of attention.",
        "unfused-chains": "Put the chain into one jax.jit, so that XLA fuses it; or write it as one Pallas kernel.",
        "launch-bound": "Put more of the step into one jax.jit; command buffers replay many with one call.",
        "host-sync": "Find what waits: block_until_ready, float() or np.asarray() of an array, printing one.",
        "fp32-products": "jax.default_matmul_precision('tensorfloat32' or 'bfloat16'); check the model's accuracy.",
        "recompilation": "jax_log_compiles says what changed. Keep shapes and static arguments the same (pad, bucket);"
        " what is compiled once only: warm up before recording.",
        "few-steps": "Record at least five steps after warm-up, each in a jax.profiler.StepTraceAnnotation.",
    },
    "tensorflow": {
        "unfused-chains": "tf.function(jit_compile=True) lets XLA fuse the chain.",
        "launch-bound": "tf.function(jit_compile=True) around the step makes fewer kernels; so do larger batches.",
        "host-sync": "Find what waits: .numpy() of a tensor, printing one, Python conditions on values.",
        "recompilation": "Keep shapes and Python arguments of a tf.function the same (input_signature, padding). What"
        " is traced once only: warm up before recording.",
        "data-wait": "Dataset.prefetch() and map(num_parallel_calls=tf.data.AUTOTUNE); decode on the device or before.",
        "fp32-products": "tf.keras.mixed_precision, or TF32 where the device has it; check the model's accuracy.",
        "few-steps": "Record at least five steps after warm-up, each in a profiler.experimental.Trace(step_num=...).",
    },
}
"""By framework and rule."""


def advice_for(rule_id: str, framework: str) -> str:
    """What to do instead of what a rule says for PyTorch; empty where that stands."""
    if framework == "pytorch":
        return ""
    return OF.get(framework, {}).get(rule_id) or ANYWHERE.get(rule_id, "")


RULES: tuple[Rule, ...] = (
    confidence.work_not_recorded,
    confidence.impossible_device_times,
    confidence.double_counts,
    confidence.job_incomplete,
    confidence.device_only,
    confidence.orphans,
    confidence.unexplained_idle,
    confidence.layers_unknown,
    computing.graph_replays,
    confidence.no_modules,
    confidence.profiling_overhead,
    confidence.start_up,
    confidence.few_steps,
    confidence.low_match_rates,
    confidence.runs_disagree,
    ranks.ramp_up,
    ranks.incomplete_steps,
    ranks.host_ahead,
    ranks.straggler,
    ranks.unbalanced_pipeline,
    ranks.pipeline_bubble,
    ranks.small_collectives,
    host_alone.host_dominant,
    host_alone.short_operators,
    idle.data_wait,
    computing.recompilation,
    idle.host_sync,
    computing.graph_breaks,
    idle.launch_bound,
    idle.gpu_idle,
    ranks.uneven_steps,
    ranks.uneven_devices,
    ranks.exposed_communication,
    idle.pageable_copies,
    idle.page_migrations,
    idle.copies_in_step,
    computing.fp32_products,
    computing.unfused_attention,
    computing.unfused_chains,
    roof.below_roof,
    roof.memory_bound,
    roof.excess_traffic,
    roof.far_from_peak,
    roof.tail_waste,
    roof.small_grids,
    computing.dominant_kernel,
    roof.low_occupancy,
    computing.dominant_layer,
    computing.stalled_layer,
    computing.recompute,
    computing.many_optimizer_kernels,
    computing.small_batch,
)
"""In the order in which findings of equal gain are told."""


def advise(frames: StepView, captures: Sequence[str] = ()) -> list[Advice]:
    """What the rules find: what promises most (by simulation, where the trace allows one) first, doubts last.

    Where the host bounds the run, what makes kernels faster comes behind the rest, unless it was simulated, and behind
    communication that nothing hides in any case: with faster kernels still less would. A finding
    of unknown gain stands where all the time that it is about would be gained, but behind one that says what a good
    part of this time is lost by. Doubts that are to be known before any number are first.

    Gains are upper bounds, each alone: they overlap, and do not add up. `captures` are paths beside the trace that look
    like traces of graphs' capture. A rule that fails is noted (`noting_faults`) and finds nothing.
    """
    facts = Facts(frames, captures)
    advice = _without_explained(
        [
            one
            for rule in RULES
            for one in attempt(f"The rule {rule.id} ({rule.title})", partial(_advice_of, rule, facts), lambda _: [])
        ]
    )
    kept = [one for one in advice if one.rule.on_trust or one.gain_share is None or one.gain_share >= thresholds.FLOOR]
    kept = attempt("The simulation of gains", partial(with_simulated_gains, frames, kept), lambda _: kept)
    last = _OF_COMPUTING if _waits_for_host(facts) else ()
    exposed = min((_rank_ns(one, kept) for one in kept if one.rule.id == "exposed-communication"), default=inf)
    bounds = {one.rule.id: _rank_ns(replace(one, simulated_ns=None), kept) for one in kept}

    def rank(one: Advice) -> tuple[bool, bool, bool, float, bool, float]:
        comes_last, gain_ns = one.rule.id in last, _rank_ns(one, kept)
        gain_ns = min(gain_ns, exposed) if comes_last else gain_ns
        is_unknown = comes_last and one.simulated_ns is None
        return not one.rule.first, one.rule.on_trust, is_unknown, -gain_ns, comes_last, -bounds[one.rule.id]

    ranked = sorted(kept, key=rank)
    return attempt("The simulation of gains together", partial(with_gain_together, frames, ranked), lambda _: ranked)


_OF_COMPUTING = (
    "fp32-products", "unfused-attention", "unfused-chains", "below-roof", "memory-bound", "excess-traffic",
    "far-from-peak", "tail-waste", "small-grids", "dominant-kernel", "dominant-layer", "stalled-layer",
    "low-occupancy",
)  # fmt: skip
"""What makes kernels faster. Where the device waits for the host it then waits longer: other findings come first."""


def _waits_for_host(facts: Facts) -> bool:
    row = busiest_device(facts.devices)
    return row is not None and largest_part(row) in HOST_BOUNDS


def _for_framework(rule: Rule, observation: Observation, facts: Facts) -> Observation:
    """The observation with what to do under the framework of the trace; rules speak of PyTorch."""
    elsewhere = "" if observation.is_for_any else advice_for(rule.id, facts.context.framework)
    return replace(observation, do=elsewhere) if elsewhere else observation


def _advice_of(rule: Rule, facts: Facts) -> list[Advice]:
    """What the rule finds; nothing where the trace does not hold what it needs."""
    if not all(holds(facts.frames.of_trace, need) for need in rule.needs):
        return []
    return [_advice(rule, _for_framework(rule, one, facts), facts) for one in rule.find(facts)]


def _advice(rule: Rule, observation: Observation, facts: Facts) -> Advice:
    """The finding with its gain, which no step can exceed."""
    gain = observation.gain_ns
    if gain is None or not facts.latency_ns:
        return Advice(rule, observation, gain, None)
    gain = min(gain, facts.latency_ns)
    return Advice(rule, observation, gain, gain / facts.latency_ns)


def _without_explained(advice: Sequence[Advice]) -> list[Advice]:
    """The findings of which no other explains most; of two that explain each other the first stays."""
    kept: list[Advice] = list(advice)
    for one in advice:
        causes = [a for a in kept if one.rule.id in a.rule.explains and a is not one]
        is_known = any(a.rule.on_trust for a in causes)
        if causes and (
            is_known or sum(_at_stake(a, 0.0) for a in causes) >= thresholds.EXPLAINED * _at_stake(one, 0.0)
        ):
            kept.remove(one)
    return kept


def _rank_ns(one: Advice, kept: Sequence[Advice]) -> float:
    """What it has at stake; of an unknown gain less, where another finding knows much of it."""
    stake = _at_stake(one, -1.0)
    explained = [a.gain_ns for a in kept if a.gain_ns and one.rule.id in a.rule.explains]
    parts = [gain for gain in explained if gain >= thresholds.MUCH_OF_IT * stake]
    return min([stake, *parts]) if one.gain_ns is None else stake


def _at_stake(one: Advice, unknown: float) -> float:
    """Its gain (simulated, else the most it can be), or the time that it is about."""
    if one.simulated_ns is not None:
        return one.simulated_ns
    at_stake = one.observation.about_ns if one.gain_ns is None else one.gain_ns
    return unknown if at_stake is None else at_stake
