"""Planted mistakes, to measure the share that the nearest tests find."""
