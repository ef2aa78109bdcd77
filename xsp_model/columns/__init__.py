"""Columns of numbers: sorting, intervals, trees, what is kept on disk while it is worked on, and as Arrow."""
