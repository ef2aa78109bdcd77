"""A comparison as text, Markdown, JSON, JUnit and a page."""
