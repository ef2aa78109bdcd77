"""What a kernel is, for everything that groups kernels: its class, its collective, its precision, a short label."""

from xsp_analyze.classification.classify import (
    PEER_COPY,
    Classified,
    KernelClass,
    by_name,
    by_operator,
    class_of_operator,
    classify,
    decide,
    learn,
    operator_type,
)
from xsp_analyze.classification.labels import label_of, precision_of

__all__ = [
    "PEER_COPY",
    "Classified",
    "KernelClass",
    "by_name",
    "by_operator",
    "class_of_operator",
    "classify",
    "decide",
    "label_of",
    "learn",
    "operator_type",
    "precision_of",
]
