"""PyTorch profiler (Kineto) JSON: traces that `torch.profiler` exports for Chrome."""
