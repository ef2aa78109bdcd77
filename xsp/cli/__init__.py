"""The command `xsp`."""
