"""The plain scanner of PyTorch traces: events decoded by msgspec some megabytes at a time."""
