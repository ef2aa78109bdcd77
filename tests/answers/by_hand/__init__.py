"""Readers and sums that import nothing but the standard library: what XSP is held against."""
