"""What is compiled: how machine code is built, shipped, loaded, and the SQLite page reader."""
