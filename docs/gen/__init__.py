"""Writes the pages of the site that say what the code says: analyses, formats, findings, API."""
