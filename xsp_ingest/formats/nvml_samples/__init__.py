"""Samples of power, clocks, temperature, memory and utilisation that the runner nvml took beside a run."""

from xsp_ingest.formats.nvml_samples.ingester import NVML_SAMPLES

__all__ = ["NVML_SAMPLES"]
