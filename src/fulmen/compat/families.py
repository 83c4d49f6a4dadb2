"""The packages that the aliases stand for."""

from __future__ import annotations

FAMILIES = ("lightning", "lightning_fabric", "pytorch_lightning")
