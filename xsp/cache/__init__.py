"""Converted traces kept from one command to the next."""
