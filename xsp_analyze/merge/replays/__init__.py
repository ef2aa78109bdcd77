"""Gives the kernels of replayed graphs the layers that the same kernels have in a run without graphs."""
