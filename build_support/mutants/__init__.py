"""Planted mistakes: how many of them the nearest tests find."""
