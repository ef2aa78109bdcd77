"""Runs of the same work over time: what is kept of each, where a series changed, and what explains it."""
