"""Leveled runs: joins runs of the same work, taken at different levels, into one profile."""
