"""Samples of processors, memory, network and disks that the runner system_samples took beside a run."""

from xsp_ingest.formats.system_samples.ingester import SYSTEM_SAMPLES

__all__ = ["SYSTEM_SAMPLES"]
