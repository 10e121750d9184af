"""The version of uhal. The packaging metadata reads it from here."""

__version__ = "0.1.0"
