"""Reads profiler files and links them into a trace."""
