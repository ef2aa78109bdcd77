"""Net and operator delays as Facebook's AI-PEP measures them."""

from xsp_ingest.formats.fai_pep.ingester import FAI_PEP

__all__ = ["FAI_PEP"]
