"""Checks of how the source is built, used by tests/architecture; each finds something in a wrong sample."""
