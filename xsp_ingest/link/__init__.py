"""Ties what readers found into one span tree."""
