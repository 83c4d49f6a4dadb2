"""The version, on the lowest floor, so that every room can read it without importing the façade."""

__version__ = "0.1.0.dev0"

LIGHTNING_VERSION = "2.6.6"
"""Release of Lightning whose names, signatures and checkpoint keys Fulmen has."""
