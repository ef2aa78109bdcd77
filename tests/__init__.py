"""Tests of the whole tree. In the quick tier polars has one thread: the workers of pytest share the processors."""

import os

if "XSP_THOROUGH" not in os.environ:  # which CI sets: there threads are as users have them
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
