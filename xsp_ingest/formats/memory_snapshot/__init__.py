"""PyTorch's records of memory: snapshots of the CUDA allocator and exported memory timelines."""

from xsp_ingest.formats.memory_snapshot.ingester import MEMORY_SNAPSHOT

__all__ = ["MEMORY_SNAPSHOT"]
