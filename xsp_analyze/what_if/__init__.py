"""What a change would gain: a trace as a graph of what waits for what, replayed with other times."""
