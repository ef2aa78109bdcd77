"""The page of a history of runs."""
