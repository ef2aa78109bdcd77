"""What several formats share between a file's rows and the linker's tables."""
