"""The compiled scanner of PyTorch traces: bytes of `traceEvents` in, columns out."""
