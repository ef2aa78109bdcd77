"""SQLite files of others, opened so that they cannot change, their large tables read from the pages."""
