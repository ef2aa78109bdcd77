"""The Python API: opens inputs as the command does, and gives answers as frames that notebooks can show."""
