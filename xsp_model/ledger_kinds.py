"""Every kind of entry in the ledger: what was lost, doubtful or left out."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from xsp_model.vocabulary import Severity

__all__ = ["LedgerKind"]

_INFO, _WARNING, _ERROR = Severity.INFO, Severity.WARNING, Severity.ERROR


class LedgerKind(StrEnum):
    """A kind of loss: what the table holds, how bad it is unless an entry says otherwise, what it is, what helps."""

    severity: Severity
    sentence: str
    advice: str

    def __new__(cls, value: str, severity: Severity = Severity.WARNING, sentence: str = "", advice: str = "") -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.severity, member.sentence, member.advice = severity, sentence, advice
        return member

    # Where device time went: the words of `Attribution`.
    EXPORT_BROKEN_OFF = (
        "export_broken_off",
        _WARNING,
        "The export lacks the tables that say what was captured and by which version: rows may be missing",
        "Export the .nsys-rep file again with `nsys export --type sqlite`",
    )
    LAYER = "layer", _INFO, "device time of work that belongs to a layer"
    MODEL_ONLY = (
        "model_only",
        _INFO,
        "device time of work launched outside of every layer",
        "Name more ranges as layers with --layer-range, or record modules (with_stack=True), to see whose it is",
    )
    GRAPH_REPLAY = (
        "graph_replay",
        _INFO,
        "device time of replayed graphs whose kernels cannot be tied to a layer",
        "Give the trace of their capture with --graph-capture; `xsp info` says how to record one",
    )
    MODEL_RANGE_UNMATCHED = (
        "model_range_unmatched",
        _WARNING,
        "no range matches the pattern of --model-range",
        "`xsp query INPUT \"select distinct name from spans where kind in ('range', 'step')\"` lists the names",
    )
    ORPHAN_BEFORE_WINDOW = (
        "orphan_before_window",
        _WARNING,
        "device time of work launched before the trace began",
        "Start the profiler a step earlier, or synchronise before it starts",
    )
    ORPHAN_NO_LAUNCH = (
        "orphan_no_launch",
        _WARNING,
        "device time of work whose launch is not in the file",
        "Record runtime and driver calls over the whole window",
    )
    ORPHAN_NO_CORRELATION = (
        "orphan_no_correlation",
        _WARNING,
        "device time of work that carries no correlation id",
        "Record with a profiler that writes correlation ids",
    )
    SEVERAL_SYSTEMS = (
        "several_systems",
        _WARNING,
        "runs of several models, frameworks or systems: sums and means over all of them mean nothing",
        "Choose one with --system, part of its name; `xsp cohort` has a row for each",
    )
    UNIFIED_MEMORY = (
        "unified_memory",
        _INFO,
        "device time of migrations of unified memory, which faults cause and nobody launches",
        "Prefetch what is needed (cudaMemPrefetchAsync), or advise where it belongs (cudaMemAdvise)",
    )

    ACCELERATOR_READ = (
        "accelerator_read",
        _INFO,
        "events of a device whose vendor is not known, read as its work by the process that they are of",
    )
    ABSURD_DURATION = "absurd_duration", _ERROR, "events so long that their times cannot be right"
    AMBIGUOUS_LANE = (
        "ambiguous_lane",
        _WARNING,
        "calls ran while several layers did, and the file does not say in which; the later layer was taken",
        "A run with the device synchronised after each layer tells which one is right",
    )
    AMBIGUOUS_PARENT = (
        "ambiguous_parent",
        _WARNING,
        "host spans started inside two spans that overlap without nesting; the later one was taken as parent",
        "A run with the device synchronised after each layer tells which parent is right",
    )
    AVERAGED_INVOCATIONS = (
        "averaged_invocations",
        _INFO,
        "rows stand for all launches of a kernel name; their counters are averages over these",
    )
    AVERAGED_TIMES = (
        "averaged_times",
        _INFO,
        "layers have the average of their times over all inferences; their starts are made up, end to end",
    )
    BROKEN_ENTRY = "broken_entry", _WARNING, "entries of the file's JSON that are broken were left out"
    BAD_LINE = "bad_line", _WARNING, "lines or rows that cannot be read"
    BUNDLE_NOT_READ = (
        "bundle_not_read",
        _WARNING,
        "bundles of the directory were not read: each is a whole trace by itself",
        "Give a bundle by itself, or its source files together with the others",
    )
    CLOCK_SKEW = (
        "clock_skew",
        _INFO,
        "a run's clock runs apart from the first run's, judged by collectives; not corrected",
    )
    CLOCKS_ALIGNED = (
        "clocks_aligned",
        _INFO,
        "a run's times were moved to the first run's clock, judged by collectives",
    )
    CLOCKS_NOT_ALIGNED = (
        "clocks_not_aligned",
        _WARNING,
        "a run's clock could not be aligned with the first run's, and its times stand as recorded",
        "Record steps in which all ranks take part in the same collectives, with their process groups",
    )
    COMMAND_BUFFER_READ = (
        "command_buffer_read",
        _INFO,
        "kernels of command buffers whose instructions follow from the order of the program's schedule",
    )
    COMMAND_BUFFER_UNREAD = (
        "command_buffer_unread",
        _WARNING,
        "kernels of command buffers that may be of several instructions, or of none that the program has",
        "Merge it with a run that has XLA_FLAGS=--xla_gpu_enable_command_buffer=, which says their layers",
    )
    COUNTER_UNAVAILABLE = (
        "counter_unavailable",
        _WARNING,
        "values that the profiler could not collect (n/a or nan); they are unknown",
    )
    COUNTERS_OF_NO_KERNEL = (
        "counters_of_no_kernel",
        _WARNING,
        "counters of dispatches that are not in the file; not read",
    )
    COUNTERS_PARTIAL = (
        "counters_partial",
        _WARNING,
        "kernels without hardware counters; sums of flops and bytes leave them out",
        "Measure counters for these kernels too",
    )
    COUNTER_WITHOUT_UNIT = (
        "counter_without_unit",
        _WARNING,
        "times, bytes and rates for which the file gives no unit; they are unknown",
        "Export it with units, or print it with `ncu --import REPORT --csv --page raw --print-units base`",
    )
    CUT_AT_A_MILLION = (
        "cut_at_a_million",
        _WARNING,
        "the profiler cuts such files at a million events; what came after is missing",
        "Read the .xplane.pb beside it, which holds all events",
    )
    CUT_NAME = "cut_name", _WARNING, "kernel names of exactly 256 or 1024 characters were probably cut off"
    CUT_OFF_JSON = (
        "cut_off_json",
        _WARNING,
        "the file ends before its JSON does: what was to follow is missing",
        "Export or copy the trace again; a profiler that was killed leaves such files",
    )
    CUT_OFF_ROWS = "cut_off_rows", _WARNING, "rows that were cut off were left out", "Copy or export the file again"
    DAMAGED_PROGRAM = (
        "damaged_program",
        _WARNING,
        "compiled programs in the profile cannot be read; their operations have no names",
    )
    DEEPEST_LEVEL_DIFFERS = (
        "deepest_level_differs",
        _WARNING,
        "the run's description says another deepest level than its files hold",
        "Without kernels a GPU's run has no kernel latencies: record it again, and read what the profiler says",
    )
    DROPPED_RECORDS = (
        "dropped_records",
        _WARNING,
        "records that the profiler dropped: its buffers were full",
        "Give the profiler larger or more buffers",
    )
    DUPLICATE_EVENT = "duplicate_event", _WARNING, "events that stand in the file more than once were read once"
    EVENTS_LEFT_OUT = "events_left_out", _INFO, "events that repeat others or are of kinds that are not read"
    EXECUTION_TRACE_JOINED = (
        "execution_trace_joined",
        _INFO,
        "operators whose shapes, types and callers the execution trace tells",
    )
    EXECUTION_TRACE_LACKS = (
        "execution_trace_lacks",
        _WARNING,
        "numbered operators that the execution trace does not have",
    )
    COMPILED_CODE_JOINED = (
        "compiled_code_joined",
        _INFO,
        "calls of compiled kernels of which the compiler says what they were generated from",
    )
    COMPILED_CODE_UNMATCHED = (
        "compiled_code_unmatched",
        _WARNING,
        "calls in compiled graphs that the trace has more or less often than the generated code, or in another order",
        "Record the trace in the process that wrote what the compiler says, from the start of a step to its end",
    )
    COMPILED_LAYERS_INCOMPLETE = (
        "compiled_layers_incomplete",
        _WARNING,
        "calls of compiled layers whose time lacks kernels that were not matched",
        "Do not compare these layers' times in the steps concerned: they are parts",
    )
    FLOPS_HALF_COLLECTED = (
        "flops_half_collected",
        _WARNING,
        "a flop count is unknown, as some of the counters that it is added up from were not collected",
    )
    GPU_METRIC_UNUSABLE = (
        "gpu_metric_unusable",
        _WARNING,
        "Samples of GPU metrics without time, value or name, left out",
    )
    GPU_NOT_USED = "gpu_not_used", _INFO, "GPUs that were sampled but not used by the run, left out"
    GRAPH_ALIGNED = (
        "graph_aligned",
        _INFO,
        "replayed work that has the layers of the same work in a run without graphs",
    )
    GRAPH_NOT_ALIGNED = (
        "graph_not_aligned",
        _WARNING,
        "replayed work that a run without graphs gives no layer",
        "Take both runs of the same work, at one batch size and precision, with autotuning off",
    )
    GRAPH_NOT_CAPTURED = (
        "graph_not_captured",
        _WARNING,
        "replays whose kernels are those of no captured graph",
        "Give the capture of the same model, batch sizes and software: a trace recorded while these graphs were made",
    )
    GRAPH_CAPTURES_ALIKE = (
        "graph_captures_alike",
        _WARNING,
        "replays that may be of several captured graphs, or of launches on several streams, of different layers",
        "Record all graphs of one run in one capture, so that their order tells, or step annotations with batch sizes",
    )
    GRAPH_CAPTURES_INCOMPLETE = (
        "graph_captures_incomplete",
        _WARNING,
        "replays that equal one captured graph repeatedly, in a step with replays of no capture: they may be alike",
        "Give the captures of all graphs of the run, as one folder",
    )
    GRAPH_CAPTURE_UNNAMED = (
        "graph_capture_unnamed",
        _WARNING,
        "replays of as many kernels as a captured graph whose launches do not say which kernels they are of",
        "Let the capture's profile hold a step or two without graphs as well: it shows what each operator launches",
    )
    GRAPH_NODES_NOT_RECORDED = (
        "graph_nodes_not_recorded",
        _INFO,
        "replays lack the last kernel of their graph, whose execution was not recorded: its time is missing",
    )
    GRAPH_NODE_UNPLACED = "graph_node_unplaced", _INFO, "nodes of graphs without a time or an id"
    IMPOSSIBLE_TIME = (
        "impossible_time",
        _ERROR,
        (
            "device activities that last beyond the next start on their stream, start before their launch, or outlast "
            "all that the host did a hundred times; taken as 0 ns long"
        ),
        "Their time is missing from every sum; compare the profiler's version with its known defects",
    )
    KERNEL_WITHOUT_EXECUTION = (
        "kernel_without_execution",
        _WARNING,
        "launches have counters but no execution on the device; their kernels have no duration",
        "Take durations from a run without counters",
    )
    KERNEL_WITHOUT_NAME = (
        "kernel_without_name",
        _INFO,
        "timelines do not name kernels; device work is named after the operator that issued it",
    )
    KERNEL_WITHOUT_NODE = "kernel_without_node", _WARNING, "device activities that the profile ties to no node"
    LAUNCH_INFERRED = "launch_inferred", _INFO, "work whose launch was found otherwise than by its correlation id"
    KERNELS_ONE_BY_ONE = (
        "kernels_one_by_one",
        _WARNING,
        "kernels ran one by one, each several times, to read counters; the time between them is the profiler's",
        "Take the timeline from a run without counters",
    )
    LAUNCHES_NOT_GIVEN = (
        "launches_not_given",
        _WARNING,
        "Device work without its launches: cuda_gpu_trace alone does not say which call or thread launched it",
        "Give cuda_api_trace and nvtx_pushpop_trace of the same report as well",
    )
    LAYERS_TAKEN_AGAIN = (
        "layers_taken_again",
        _INFO,
        "layers were taken again from another source than when the files were converted",
    )
    LEVELS_MIXED = (
        "levels_mixed",
        _WARNING,
        "the file holds runs at several trace levels; tables over all of them add what was measured several times",
        "Write each trace into a file of its own and join them with `xsp merge`",
    )
    LEVELS_SPLIT = (
        "levels_split",
        _INFO,
        "runs of the same work at several levels were in one file, and were told apart and merged",
    )
    LOADGEN_ACCURACY_RUN = (
        "loadgen_accuracy_run",
        _WARNING,
        "the test was for accuracy; its latencies are not performance",
    )
    LOADGEN_ERROR = "loadgen_error", _ERROR, "errors in LoadGen's log"
    LOADGEN_INVALID = "loadgen_invalid", _WARNING, "a condition of LoadGen's rules that the test did not meet"
    LOADGEN_PERCENTILE_DIFFERS = (
        "loadgen_percentile_differs",
        _WARNING,
        "latencies worked out from the trace differ from those in LoadGen's summary",
        "Are the logs of one test?",
    )
    LOADGEN_QUEUED = (
        "loadgen_queued",
        _INFO,
        "latencies count from when a query was due and hold its time in the queue: nothing is given as a share of them",
        "Time the model alone with the scenario SingleStream or MultiStream",
    )
    LOADGEN_WARNING = "loadgen_warning", _WARNING, "warnings in LoadGen's log"
    MATCH_KERNELS = "match_kernels", _INFO, "how many kernels of two runs of a profile match"
    MATCH_LAYERS = "match_layers", _INFO, "how many layers of two runs of a profile match"
    MENDED_JSON = "mended_json", _INFO, "places of the file that are no JSON were read as what they must mean"
    MEMORY_IN_USE_BEFORE = (
        "memory_in_use_before",
        _INFO,
        (
            "Kinds of memory of a device of which more was released than allocated in the capture: what "
            "was in use before it is counted only as far as it was released"
        ),
    )
    MERGED_TRACE = "merged_trace", _INFO, "processes whose ids are texts, as in a trace merged of several"
    MISSING_DISPATCHES = (
        "missing_dispatches",
        _WARNING,
        "dispatches whose numbers are missing between those that were recorded: left out by choice, or lost",
        "Record all kernels, without --kernel-include-regex or a collection period",
    )
    MISSING_DURATION = "missing_duration", _WARNING, "layers without a time that can be used were left out"
    MISSING_END = "missing_end", _WARNING, "events without an end; kept, their duration is unknown"
    MISSING_REFERENCE = "missing_reference", _WARNING, "spans refer to a parent that is not in the file"
    MISSING_START = "missing_start", _WARNING, "events without a start were left out"
    MISSING_TIME = "missing_time", _WARNING, "rows without a start or a duration"
    MODULE_TEXT_UNREADABLE = (
        "module_text_unreadable",
        _INFO,
        "ranges whose text begins as a module's does and cannot be read; they keep the text as their name",
    )
    NEGATIVE_DURATION = "negative_duration", _WARNING, "events that end before they start"
    NEGATIVE_NON_KERNEL = (
        "negative_non_kernel",
        _INFO,
        "layers whose kernels took longer than the layer: they overlap, outlast its call, or run in backward",
        "Take layer latency from a serialised run, where the device is waited for after every layer",
    )
    NESTED_TOO_DEEP = (
        "nested_too_deep",
        _WARNING,
        "spans in more than 511 others: below the outermost 256 levels, each further 256 hang together under the 256th",
    )
    NO_COUNTERS = (
        "no_counters",
        _INFO,
        "no hardware counters in this trace: flops, bytes and occupancy were not measured, what stands is modelled",
        "Measure counters in a run of their own and merge the runs",
    )
    NO_END = "no_end", _WARNING, "the file has no closing record: what wrote it was stopped, and records may be missing"
    NO_EPOCH = "no_epoch", _WARNING, "runs do not say at which Unix time they were taken; each was put at time 0"
    NO_KERNEL_TABLE = (
        "no_kernel_table",
        _WARNING,
        "The file has no table of kernels: no kernel was recorded, or CUDA was not traced",
        "Capture with `nsys profile --trace=cuda,nvtx`",
    )
    NO_LEVEL = "no_level", _INFO, "spans without a trace level count as application"
    NO_QUERY_LATENCIES = (
        "no_query_latencies",
        _INFO,
        "there is no trace: the latencies of single queries are unknown, only their percentiles are",
        "Set enable_trace in LoadGen's LogSettings, and give mlperf_log_trace.json as well",
    )
    NO_TIMESTAMPS = "no_timestamps", _INFO, "work without times of its own; it has no place on a time line"
    NOT_AN_EVENT = "not_an_event", _WARNING, "entries that are no events"
    NOT_IN_EVERY_STEP = (
        "not_in_every_step",
        _INFO,
        "kernels that run in some steps only; each counts for the share of steps it is in",
        "Look at single steps with --steps each where the difference matters",
    )
    NOT_SELECTED = "not_selected", _INFO, "spans outside of the part of the trace that was chosen"
    NOT_UTF8 = "not_utf8", _INFO, "texts that are not UTF-8; their foreign bytes show as U+FFFD"
    NVML_JOINED = "nvml_joined", _INFO, "moments of the run at which GPUs were sampled"
    NVTX_MARKS_SKIPPED = "nvtx_marks_skipped", _INFO, "marks, which have no duration, are not spans"
    NVTX_STATE_LEFT_OUT = "nvtx_state_left_out", _INFO, "kinds of NVTX ranges were not read: those started, not pushed"
    OPERATORS_OUTSIDE_LAYERS = (
        "operators_outside_layers",
        _INFO,
        "operators run outside of every layer's scope belong to no layer",
    )
    OS_RUNTIME_LEFT_OUT = (
        "os_runtime_left_out",
        _INFO,
        "calls of the operating system were not read",
        "Convert with --os-runtime",
    )
    OUT_OF_MEMORY = "out_of_memory", _WARNING, "allocations that failed: the device had no memory left"
    OUTSIDE_STEPS = (
        "outside_steps",
        _WARNING,
        "device work outside of the chosen steps, left out of every table (over the whole trace)",
        "Use --steps all to count it",
    )
    OVERHANG = (
        "overhang",
        _WARNING,
        "host spans end more than 1 us after the span they started in; each but named ranges is nested by its start",
    )
    PACKED_FP32_NOT_COUNTED = (
        "packed_fp32_not_counted",
        _WARNING,
        "flop_count_sp misses packed FP32 instructions, which this chip has and which were not collected",
    )
    PARENT_RESOLVED = "parent_resolved", _INFO, "kernels with two possible parents got theirs from the serialised run"
    PARENT_UNRESOLVED = (
        "parent_unresolved",
        _WARNING,
        "kernels with two possible parents have no counterpart in the serialised run and keep the later parent",
    )
    PARENT_NOT_AROUND = (
        "parent_not_around",
        _WARNING,
        "spans run beside their parent's other children, or outlast it or are of another process; they stand alone",
    )
    PART_OF_TRACE = "part_of_trace", _INFO, "spans outside the part asked for were left out"
    PAYLOAD_UNREADABLE = (
        "payload_unreadable",
        _INFO,
        "ranges of NCCL whose payload (communicator, size of the message) is of no form that is known",
    )
    PEAKS_UNKNOWN = (
        "peaks_unknown",
        _INFO,
        "devices whose peak rates are unknown: nothing says what is compute or memory bound there",
        "Give them with --device FILE.toml; `xsp devices` shows the devices that are known",
    )
    PROFILER_DIAGNOSTIC = "profiler_diagnostic", _WARNING, "the profiler itself reported an error or a warning"
    PROFILER_OVERHEAD = (
        "profiler_overhead",
        _INFO,
        "stretches in which the profiler itself worked; host times around them are longer for it",
    )
    PROFILER_RANGES_RENAMED = (
        "profiler_ranges_renamed",
        _WARNING,
        "profiler ranges have another name than the kernel in their place",
    )
    PROFILER_ADVICE = "profiler_advice", _INFO, "what the profiler's own rules say of kernels"
    PROFILER_RANGES_TIED = (
        "profiler_ranges_tied",
        _INFO,
        "profiler ranges were tied to kernels or ranges by their order; their own times are not those of kernels",
    )
    PROFILER_RANGES_UNMATCHED = (
        "profiler_ranges_unmatched",
        _WARNING,
        "profiler ranges could not be tied to kernels or ranges; not read",
    )
    PYTHON_FRAMES_LEFT_OUT = "python_frames_left_out", _INFO, "frames of Python functions were not kept"
    RANGE_WITHOUT_NAME = (
        "range_without_name",
        _WARNING,
        "NVTX ranges whose registered string is not in the capture: their name is its address, or none",
        "Capture from the start of the program, so that the registration of its strings is seen",
    )
    RANGES_CROSS = (
        "ranges_cross",
        _WARNING,
        "calls during several start/end ranges that cross, so that they lie in none of them",
        "Mark work with push/pop ranges on the thread that does it",
    )
    RECORD_WITHOUT_KIND = "record_without_kind", _WARNING, "records that do not say their kind"
    RECORDS_NOT_READ = "records_not_read", _INFO, "records of kinds that are not read from such files"
    REFERENCE_CYCLE = (
        "reference_cycle",
        _WARNING,
        "spans are, by their references, their own ancestors; they were left roots",
    )
    RESTATED = "restated", _INFO, "Rows of cuda_kern_exec_trace restate what other reports of the file say; not read"
    ROUNDED_TIMES = (
        "rounded_times",
        _INFO,
        "rows whose times were printed with four or five digits; starts and durations are rounded to these",
        "Print with --csv, or record with `nvprof -o FILE`",
    )
    RUN_FAILED = (
        "run_failed",
        _WARNING,
        "runs that failed when they were collected, and so are left out",
        "Repeat the command that collected them with --resume",
    )
    RUN_NOT_USED = (
        "run_not_used",
        _WARNING,
        "runs that were not used, since another run of their level was",
        "Give one run per level; merge the others apart to compare them",
    )
    RUNS_APART = (
        "runs_apart",
        _WARNING,
        "runs were read together whose times do not overlap: sums and shares over them may mean nothing",
        "Give files of different work one by one",
    )
    SAME_CONTENT_AGAIN = (
        "same_content_again",
        _WARNING,
        "inputs that hold what another one holds were not read: copies, links, the same as gzip, or bundles of it",
        "Remove them; where they were to be other ranks or runs, copy those files again from where they were recorded",
    )
    SAME_RANK_AGAIN = (
        "same_rank_again",
        _WARNING,
        "runs of several files say that they are the same rank: what is summed over all ranks counts it more than once",
        "Give one capture of each rank of one job; captures of one rank are put side by side by `xsp compare`",
    )
    SAME_RUN_AGAIN = "same_run_again", _INFO, "files that hold the same run in another of its tool's outputs; not read"
    SAME_WORK_AGAIN = (
        "same_work_again",
        _WARNING,
        "files whose work took the same times to the nanosecond are one recording: what is summed counts it again",
        "Give one file of each recording, rather than its copies, exports and conversions too",
    )
    SANITY_ABOVE_ROOF = "sanity_above_roof", _WARNING, "kernels did more than their device can"
    SANITY_DRAM_READ_BYTES = (
        "sanity_dram_read_bytes",
        _WARNING,
        "layers whose kernels read fewer bytes than their input tensors hold",
    )
    SANITY_DRAM_WRITE_BYTES = (
        "sanity_dram_write_bytes",
        _WARNING,
        "layers whose kernels wrote fewer bytes than their output tensor holds",
    )
    SANITY_FLOP_COUNT = (
        "sanity_flop_count",
        _WARNING,
        "layers whose measured flops are over four times more or fewer than their shapes ask for",
    )
    SANITY_OCCUPANCY = "sanity_occupancy", _WARNING, "kernels whose achieved occupancy lies outside of 0 to 1"
    SANITY_SUMS = (
        "sanity_sums",
        _WARNING,
        "device time or layer time differs from what it must sum to",
        "Report it with the trace: it is a fault of the analysis",
    )
    SENSOR_DEVICE_UNKNOWN = (
        "sensor_device_unknown",
        _WARNING,
        "Samples of power, temperature or clocks of which the file does not say which device they are of",
    )
    SENSOR_UNUSABLE = (
        "sensor_unusable",
        _WARNING,
        "Samples of power, temperature or clocks without time or value, left out",
    )
    START_BEFORE_LAUNCH = (
        "start_before_launch",
        _ERROR,
        "device activities start over 100 us before they were launched: host and device times are of different clocks",
        "Do not rest on idle time, its causes and delays of launches; times of kernels stay good",
    )
    STREAM_OVERLAP = (
        "stream_overlap",
        _ERROR,
        "device activities of one stream overlap",
        "Read busy time, not sums over kernels or layers; compare the profiler's version with its known defects",
    )
    STEP_CUT = (
        "step_cut",
        _WARNING,
        "steps that reach out of the chosen part of the trace, so that work of theirs is left out",
    )
    RAMP_UP_STEPS = (
        "ramp_up_steps",
        _INFO,
        "steps before the latency of their run had settled (ramp-up) are left out of the mean",
        "Look at them with --steps each",
    )
    STEP_WITHOUT_DEVICE_WORK = (
        "step_without_device_work",
        _INFO,
        "steps without any device work (or operator, without a device) beside others with it are left out of the mean",
        "Look at them with --steps each",
    )
    STEP_INCOMPLETE = (
        "step_incomplete",
        _WARNING,
        "first or last steps with under half of the launched work of the median step were cut: not in the mean",
        "Let the profiler's schedule end with its last step (repeat=1); look at them with --steps each",
    )
    STEP_BEGINS_IN_WAIT = (
        "step_begins_in_wait",
        _WARNING,
        "steps that wait for half of their time before they launch anything, so for work of others: not in the mean",
        "Synchronise before the first step, or record more steps; look at them with --steps each",
    )
    STEPS_HOLD_LITTLE = (
        "steps_hold_little",
        _WARNING,
        "marked steps hold under half of the device time (else of operators), or none is whole: taken as one trace",
        "Look at them with --steps mean, or name the ranges that are steps with --model-range",
    )
    STEPS_INFERRED = (
        "steps_inferred",
        _INFO,
        "the program marked no steps; repeated work was taken for steps",
        (
            "Mark steps with jax.profiler.StepTraceAnnotation or "
            "tf.profiler.experimental.Trace(step_num=...), or name the range of a step with --model-range"
        ),
    )
    SUMMARY_LEFT_OUT = "summary_left_out", _WARNING, "tables of sums beside the single events were not read"
    TABLE_NOT_READ = "table_not_read", _INFO, "rows of tables of the capture that nothing was made of"
    SYSTEM_JOINED = "system_joined", _INFO, "moments of the run at which the machine was sampled"
    TENSOR_COUNTS_PARTIAL = (
        "tensor_counts_partial",
        _INFO,
        "operations of tensor cores were added up from some of their counters alone",
    )
    TENSOR_WORK_NOT_COUNTED = (
        "tensor_work_not_counted",
        _WARNING,
        "kernels used tensor cores, but their operations were not collected: the flops shown are of other pipes",
        "Collect sm__ops_path_tensor_src_*.sum with a recent ncu",
    )
    TEXT_COUNTER_LEFT_OUT = "text_counter_left_out", _INFO, "values that are no numbers"
    UNCLEAR_PROCESS = "unclear_process", _WARNING, "device activities whose launch may be of several processes"
    UNCLOSED_RANGE = (
        "unclosed_range",
        _INFO,
        "NVTX ranges that never ended in the capture; kept, their duration unknown",
    )
    UNIT_TAKEN = "unit_taken", _WARNING, "times are in another unit than the format says, by what they can be"
    UNKNOWN_CATEGORY = "unknown_category", _WARNING, "events of an unknown category were not read"
    UNKNOWN_EVENT = "unknown_event", _WARNING, "events of categories that XSP does not know"
    UNKNOWN_FILE = "unknown_file", _INFO, "files of the directory are of no known format and were left out"
    UNKNOWN_LANE = (
        "unknown_lane",
        _WARNING,
        "events of lanes that are neither an executor's nor a stream's were not read",
    )
    UNKNOWN_LEVEL = "unknown_level", _WARNING, "spans of an unknown level"
    UNKNOWN_LINE = "unknown_line", _WARNING, "events of an unknown line of a device were not read"
    UNKNOWN_PLANE = "unknown_plane", _WARNING, "events of an unknown plane were not read"
    UNKNOWN_RECORD = "unknown_record", _INFO, "records of kinds that XSP does not know"
    UNNAMED_EXTERNAL_ID = "unnamed_external_id", _INFO, "external ids that no operator of the dump has"
    UNKNOWN_TOOL = (
        "unknown_tool",
        _INFO,
        "events of a tool that is not known were read as ranges of their threads, whatever work they stand for",
    )
    UNPAIRED_EVENTS = "unpaired_events", _WARNING, "events that begin without an end, or end without a begin"
    UNREADABLE_FILE = (
        "unreadable_file",
        _ERROR,
        "a file of the directory could not be read and is not in any number here",
    )
    UNREADABLE_MEMORY = (
        "unreadable_memory",
        _WARNING,
        "layers' tag `output` was cut off when it was written; what they allocated is unknown",
    )
    UNREADABLE_SAMPLE = "unreadable_sample", _WARNING, "samples of the trace lack a query, a time or a latency"
    UNSAFE_FILE = (
        "unsafe_file",
        _WARNING,
        "links that lead out of the directory, and files that are pipes, sockets or devices, were left out",
    )
    UNUSABLE_MEMORY_EVENT = "unusable_memory_event", _WARNING, "events of memory without a time, a size or an operation"
    WORK_MODEL_REFUSED = (
        "work_model_refused",
        _WARNING,
        "calls that took less time than their modelled work can, whatever caches held; their work counts as unknown",
        "Hold the device's name and peaks (--gpu, --device) against the trace; else the model of the operator is wrong",
    )
    WORK_MODEL_UNFIT = (
        "work_model_unfit",
        _WARNING,
        "calls of operators that the user's work models hold for and tell nothing of",
        "Hold the models' operands, shapes and numbers of inputs against what the trace recorded of these calls",
    )
    WORK_MODEL_UNUSED = (
        "work_model_unused",
        _INFO,
        "names in the user's work models that no operator of the trace has",
    )
