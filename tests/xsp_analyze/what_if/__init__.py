"""What changes would gain."""
