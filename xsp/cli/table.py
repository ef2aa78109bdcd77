"""The commands in the order of the help: what each is for, and where it is; none is imported before it is called."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ABOUT", "COMMANDS", "Command"]

ABOUT = (
    "Says where a model's time went, from the files of profilers you already have.\n\n"
    "xsp reads files of PyTorch, Nsight Systems, TensorFlow, JAX and many other profilers (`xsp formats`), joins them"
    " into one tree (model, layer, operator, library call, runtime call, kernel), and answers questions about it.\n\n"
    "Start with: xsp report trace.json.gz -o report.html"
)


class Command(NamedTuple):
    """A command: `help` is the first sentence of the function of that name in the module.

    `passes_on`: it leaves every option, --help among them, to the program that it starts.
    """

    name: str
    help: str
    passes_on: bool = False

    @property
    def module(self) -> str:
        """The module that holds it."""
        return f"xsp.cli.commands.{self.function}"

    @property
    def function(self) -> str:
        """What it is called in Python."""
        return self.name.replace("-", "_")


COMMANDS = (
    Command(
        "report", "Write a report that opens in any browser: one HTML file, with nothing to install and no network."
    ),
    Command("top", "Show the layers and kernels that take most time, and what could be gained."),
    Command("findings", "Say what is worth doing next: each finding with its evidence and the most it can gain."),
    Command(
        "what-if", "Say what changes would gain, each alone and together, by replaying the trace with other times."
    ),
    Command("analyze", "Answer questions about a trace as tables: times per layer, per kernel, per device, ..."),
    Command("view", "Look at a whole trace over time in the browser, served from this machine to this machine alone."),
    Command("mcp", "Answer an agent's questions about these files, and no others, over the Model Context Protocol."),
    Command("batch", "Convert and report many traces at once, with an index page over all of them."),
    Command(
        "ranks", "Put the ranks of one job side by side: who is slow, who waits for whom, where a pipeline is empty."
    ),
    Command("convert", "Read profiler files once and keep the joined trace as a bundle, which opens in a moment."),
    Command("export", "Write a trace for other programs to open."),
    Command(
        "figure",
        "Draw an analysis's figure for a paper, as PDF, SVG or PNG; needs matplotlib (`pip install matplotlib`).",
    ),
    Command("query", "Ask a trace anything in SQL: its tables, and any analysis by its id (`xsp schema` lists both)."),
    Command("schema", "Print tables, columns, types and units, for `xsp query` and Python."),
    Command("merge", "Join runs of the same work, taken at different levels, into one profile."),
    Command(
        "compare",
        "Say what became slower or faster between two captures of the same work, and what explains the difference.",
    ),
    Command(
        "cohort",
        "Put many models, systems and batch sizes side by side: latency, throughput, GPU share, bounds, similarity.",
    ),
    Command(
        "history",
        "Keep what each run of the same work came to, show where it changed and why, and hold a new run against it.",
    ),
    Command("info", "Say what a trace holds, how much device time has a layer, and what to record for more."),
    Command("analyses", "List the analyses: id, title, and the levels a trace must hold for each."),
    Command("formats", "List the file formats that xsp reads, or tell all about one."),
    Command(
        "devices",
        "List the devices whose peak rates xsp knows: tera-operations per second, dense, and gigabytes per second.",
    ),
    Command(
        "collect",
        "Run a workload at several levels and leave a run set for xsp merge. See `xsp collect --help`.",
        passes_on=True,
    ),
)
