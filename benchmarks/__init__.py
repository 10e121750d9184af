"""Comparisons with other libraries: ratios from one run on one machine, never in a test."""
