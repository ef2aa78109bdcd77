"""Calls of operators, and the least work that they must do."""
