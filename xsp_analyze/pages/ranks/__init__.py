"""The page of a job of ranks."""
