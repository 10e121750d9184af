"""Helpers of `setup.py` and the Makefile; not installed."""
