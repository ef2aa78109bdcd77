"""Every analysis, listed once, and what each answers of a view of a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.analyses.a01_model_information import model_information
from xsp_analyze.analyses.a02_layer_information import layer_information
from xsp_analyze.analyses.a03_layer_latency import layer_latency
from xsp_analyze.analyses.a04_layer_memory import layer_memory
from xsp_analyze.analyses.a05_layer_type_distribution import layer_type_distribution
from xsp_analyze.analyses.a06_layer_latency_by_type import layer_latency_by_type
from xsp_analyze.analyses.a07_layer_memory_by_type import layer_memory_by_type
from xsp_analyze.analyses.a08_kernel_information import kernel_information
from xsp_analyze.analyses.a09_kernel_roofline import kernel_roofline
from xsp_analyze.analyses.a10_kernel_by_name import kernel_by_name
from xsp_analyze.analyses.a11_kernel_by_layer import kernel_by_layer
from xsp_analyze.analyses.a12_metrics_by_layer import metrics_by_layer
from xsp_analyze.analyses.a13_gpu_share_by_layer import gpu_share_by_layer
from xsp_analyze.analyses.a14_layer_roofline import layer_roofline
from xsp_analyze.analyses.a15_kernel_by_model import kernel_by_model
from xsp_analyze.analyses.b01_ledger import ledger
from xsp_analyze.analyses.b02_profiling_overhead import profiling_overhead
from xsp_analyze.analyses.b03_timeline import timeline
from xsp_analyze.analyses.b04_launch import launch
from xsp_analyze.analyses.b05_library import library_calls
from xsp_analyze.analyses.b06_module_tree import module_tree
from xsp_analyze.analyses.b07_copies import copies
from xsp_analyze.analyses.b08_collectives import collectives
from xsp_analyze.analyses.b09_memory import memory
from xsp_analyze.analyses.b10_critical_path import critical_path
from xsp_analyze.analyses.b11_modelled_work import modelled_work
from xsp_analyze.analyses.b14_energy import energy
from xsp_analyze.analyses.b16_idle_calls import idle_calls
from xsp_analyze.analyses.b17_kernel_by_class import kernel_by_class
from xsp_analyze.analyses.b18_graph_replays import replayed_graphs
from xsp_analyze.analyses.b19_compiled_code import kernels_of_compiled_code
from xsp_analyze.analyses.b20_serving_steps import serving_steps
from xsp_analyze.analyses.b21_mixture_of_experts import expert_blocks, mixture_of_experts
from xsp_analyze.analyses.b23_operators_by_shape import operators_by_shape
from xsp_analyze.analyses.b24_flop_utilisation import flop_utilisation
from xsp_analyze.analyses.b25_serving_phases import serving_phases
from xsp_analyze.analyses.b26_kernel_waves import kernel_waves
from xsp_analyze.analyses.b27_measured_work import measured_work
from xsp_analyze.analyses.b28_repeated_blocks import positions_of_blocks
from xsp_analyze.analyses.b29_ranks import ranks
from xsp_analyze.analyses.b30_stragglers import stragglers
from xsp_analyze.analyses.b31_bus_bandwidth import bus_bandwidth
from xsp_analyze.analyses.b32_memory_curve import memory_over_time
from xsp_analyze.analyses.b33_memory_owners import memory_at_peak
from xsp_analyze.analyses.b34_allocations_at_peak import allocations_at_peak
from xsp_analyze.analyses.b35_stages import stages
from xsp_analyze.analyses.b36_accuracy_and_outputs import accuracy_and_outputs
from xsp_analyze.analyses.b37_system_shares import system_shares
from xsp_analyze.analyses.b38_batch_sizes import batch_sizes
from xsp_analyze.analyses.nsys import NSYS_REPORTS
from xsp_analyze.analyses.recipes import NSYS_RECIPES
from xsp_analyze.core import run
from xsp_model import XspError
from xsp_model.closest import closest

if TYPE_CHECKING:
    import polars as pl

    from xsp_analyze.core import Analysis, Result
    from xsp_analyze.trace.step_view import StepView

__all__ = ["ANALYSES", "find", "outcome", "result", "table"]

ANALYSES: tuple[Analysis, ...] = (
    model_information,
    layer_information,
    layer_latency,
    layer_memory,
    layer_type_distribution,
    layer_latency_by_type,
    layer_memory_by_type,
    kernel_information,
    kernel_roofline,
    kernel_by_name,
    kernel_by_layer,
    metrics_by_layer,
    gpu_share_by_layer,
    layer_roofline,
    kernel_by_model,
    ledger,
    profiling_overhead,
    timeline,
    launch,
    library_calls,
    module_tree,
    copies,
    collectives,
    memory,
    critical_path,
    modelled_work,
    energy,
    idle_calls,
    kernel_by_class,
    replayed_graphs,
    kernels_of_compiled_code,
    serving_steps,
    mixture_of_experts,
    expert_blocks,
    operators_by_shape,
    flop_utilisation,
    serving_phases,
    kernel_waves,
    measured_work,
    positions_of_blocks,
    ranks,
    stragglers,
    bus_bandwidth,
    memory_over_time,
    memory_at_peak,
    allocations_at_peak,
    stages,
    accuracy_and_outputs,
    system_shares,
    batch_sizes,
    *NSYS_REPORTS,
    *NSYS_RECIPES,
)
"""In the order in which `xsp analyses` lists them."""


def find(identifier: str) -> Analysis:
    """The analysis with that id, however it is capitalised; XspError naming those near to it by id or title."""
    for analysis in ANALYSES:
        if analysis.id.lower() == identifier.lower():
            return analysis
    titles = {a.title: a.id for a in ANALYSES}
    near = [titles.get(name, name) for name in closest(identifier, [*(a.id for a in ANALYSES), *titles])]
    named = [f"{a.id} ({a.title})" for identity in dict.fromkeys(near) for a in ANALYSES if a.id == identity]
    hint = f"Did you mean {' or '.join(named)}? " if named else ""
    raise XspError(f"there is no analysis {identifier!r}", advice=f"{hint}`xsp analyses` lists them")


def outcome(view: StepView, identifier: str) -> Result | XspError:
    """What the analysis of that id answers, or why the trace cannot tell it; worked out once for the view."""
    return view.once(_outcome, find(identifier).id)


def result(view: StepView, identifier: str) -> Result:
    """The same; XspError is raised."""
    answer = outcome(view, identifier)
    if isinstance(answer, XspError):
        raise answer
    return answer


def table(view: StepView, identifier: str) -> pl.DataFrame | None:
    """The table of the same; None where the trace cannot tell it."""
    answer = outcome(view, identifier)
    return None if isinstance(answer, XspError) else answer.table


def _outcome(view: StepView, identifier: str) -> Result | XspError:
    try:
        return run(find(identifier), view)
    except XspError as error:
        return error.with_traceback(None)  # which holds the tables that it came by
