"""A script that runs one recorded operator of torch alone."""

from xsp_analyze.export.benchmark.writer import benchmark_of

__all__ = ["benchmark_of"]
