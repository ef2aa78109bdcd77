"""Feeds every reader damaged and hostile variants of the fixtures; see README.md."""
