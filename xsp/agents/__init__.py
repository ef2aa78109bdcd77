"""Answers for agents, over the Model Context Protocol: read-only, small, and of files that the user named alone."""
