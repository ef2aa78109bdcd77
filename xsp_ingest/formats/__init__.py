"""The formats that XSP reads, a folder each; none imports another."""
