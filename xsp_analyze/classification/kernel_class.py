"""The classes that kernels, and other device activities, are of."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["KernelClass"]


class KernelClass(StrEnum):
    """What a kernel does; in the order in which tables list them."""

    MATRIX_PRODUCT = "matrix product"
    CONVOLUTION = "convolution"
    ATTENTION = "attention"
    MIXTURE_OF_EXPERTS = "mixture of experts"  # routing, dispatch, the experts themselves, combining
    NORMALISATION = "normalisation"
    SOFTMAX = "softmax"
    ELEMENTWISE = "elementwise"  # activations too
    REDUCTION = "reduction"
    EMBEDDING = "embedding and gather"
    POOLING = "pooling"
    SORTING = "sort and scan"
    RANDOM = "random"
    QUANTISATION = "quantisation"
    OPTIMIZER = "optimizer"
    COMMUNICATION = "communication"
    COPY = "copy"  # copies, and kernels that only move or convert
    MEMSET = "memset"  # memsets, and kernels that only fill
    OTHER = "other"
