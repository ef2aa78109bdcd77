"""What compiled kernels are made of: our runner's record, PyTorch's own log, and how either is joined to a trace."""
