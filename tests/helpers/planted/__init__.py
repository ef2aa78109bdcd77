"""Traces of a small training job with one bottleneck planted, whose cost is known because the job is simulated."""
