"""Run sets: a folder of runs of the same work at several levels, each with its `run.json` and raw files."""
