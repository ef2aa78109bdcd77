"""A performance gate in tests: pytest's fixture `xsp_capture`, which holds a region against a stored baseline."""
