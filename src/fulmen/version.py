"""The version, on the lowest floor, so that every room can read it without importing the façade."""

__version__ = "0.1.0.dev0"
