"""Facts on real and made files, each worked out by hand, and what XSP says of the same."""
