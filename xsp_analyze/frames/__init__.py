"""What analyses share: frames computed once for a trace or for a choice of its steps."""
