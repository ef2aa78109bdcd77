"""From captures of two sides to comparisons, for whoever asks: the command, agents, tests."""
