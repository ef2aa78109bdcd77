"""Computes where time, flops and bytes went, and renders the answers."""
