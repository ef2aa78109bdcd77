"""What is planted, how strongly, and the finding that has to name it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.helpers.planted.parts import Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.findings import Advice

__all__ = ["KINDS", "Kind", "Strength"]


_CLEAN = Plan()


@dataclass(frozen=True)
class Strength:
    """A bottleneck as strong as `label` says: the job with it, and the same job without."""

    label: str
    planted: Plan
    clean: Plan = _CLEAN


@dataclass(frozen=True)
class Kind:
    """A bottleneck and the rule that names it; `first_named`: index of the weakest strength that must come first."""

    title: str
    rule: str
    strengths: Sequence[Strength]
    first_named: int
    has_gain: bool = True  # else it spoils the numbers only, and its finding is a doubt

    def judged(self, findings: Sequence[Advice]) -> Sequence[Advice]:
        """The findings among which it has to be the first."""
        return [one for one in findings if one.rule.on_trust is not self.has_gain]


_RANKS = Plan(ranks=3, steps=3)
_STAGES = Plan(ranks=2, steps=3, micro_batches=40)


def _fp32(tensor_ns: int) -> Strength:
    plan = Plan(fp32_ns=tensor_ns)
    return Strength(f"{8 * tensor_ns / 1e6:g} ms of products", plan, replace(plan, on_tensor_cores=True))


def _copied(megabytes: int) -> Strength:
    plan = Plan(pageable_bytes=megabytes * 1_000_000)
    return Strength(f"{megabytes} MB", plan, replace(plan, is_pinned=True))


def _norms(half_ns: int) -> Strength:
    plan = Plan(norm_ns=half_ns)
    return Strength(f"{2 * half_ns / 1e6:g} ms of layers", plan, replace(plan, in_half=True))


def _ahead(product_us: int) -> Strength:
    plan = Plan(product_ns=1_000 * product_us, synchronized=False)
    return Strength(f"{36 * product_us / 1e3:g} ms of products", plan, replace(plan, synchronized=True))


def _slower(share: float) -> Strength:
    return Strength(f"{share:.0%} slower", replace(_RANKS, slower=share), _RANKS)


def _calls(number: int) -> Strength:
    return Strength(f"{number} all-reduces", replace(_RANKS, calls=number), _RANKS)


def _shifted(share: float) -> Strength:
    return Strength(f"a stage {share:.0%} longer", replace(_STAGES, shifted=share), _STAGES)


def _first(duration_ns: int) -> Strength:
    return Strength(f"the first step {duration_ns / 1e6:g} ms longer", Plan(first_step_ns=duration_ns))


def _compiled(duration_ns: int) -> Strength:
    return Strength(f"{duration_ns / 1e6:g} ms in every second step", Plan(compiled_ns=duration_ns))


KINDS: Sequence[Kind] = (
    Kind("input", "data-wait",
         [Strength(f"{us / 1e3:g} ms a batch", Plan(input_ns=us * 1000)) for us in (200, 1_000, 5_000)], 1),
    Kind("launch", "launch-bound",
         [Strength(f"{n} small kernels", Plan(small_kernels=n)) for n in (12, 60, 240)], 1),
    Kind("synchronisation", "host-sync",
         [Strength(f"{n} values read", Plan(values_read=n)) for n in (2, 6, 12)], 1),
    Kind("pageable copies", "pageable-copies",
         [_copied(megabytes) for megabytes in (1, 6, 15)], 1),
    Kind("a straggler", "straggler", [_slower(share) for share in (0.01, 0.08, 0.3)], 1),
    Kind("many small collectives", "small-collectives", [_calls(number) for number in (96, 384, 768)], 1),
    Kind("unfused elementwise chains", "unfused-chains",
         [Strength(f"chains of {n}", Plan(chain=n)) for n in (2, 4, 10)], 1),
    Kind("FP32 products where tensor cores idle", "fp32-products",
         [_fp32(ns) for ns in (20_000, 200_000, 1_000_000)], 1),
    Kind("memory-bound layers", "memory-bound", [_norms(ns) for ns in (300_000, 1_500_000, 3_500_000)], 1),
    Kind("unbalanced pipeline", "unbalanced-pipeline", [_shifted(share) for share in (0.02, 0.1, 0.4)], 1),
    Kind("recompilation", "recompilation", [_compiled(ns) for ns in (300_000, 3_000_000, 40_000_000)], 1),
    Kind("ramp-up", "ramp-up", [_first(ns) for ns in (200_000, 6_000_000, 50_000_000)], 1, has_gain=False),
    Kind("host running ahead", "host-ahead", [_ahead(us) for us in (100, 200, 300)], 0, has_gain=False),
)  # fmt: skip
