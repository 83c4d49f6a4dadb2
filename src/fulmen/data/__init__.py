"""Loaders: plans, resumable streams, checks, transfer to the device, sizes of batches."""

from fulmen.data.batch_size import batch_size_of
from fulmen.data.plan import LoaderPlan, LoaderRun, StreamState
from fulmen.data.sources import attach_worker_seeding, loader_plans, set_epoch
from fulmen.data.transfer import BatchTransfer

__all__ = [
    "BatchTransfer",
    "LoaderPlan",
    "LoaderRun",
    "StreamState",
    "attach_worker_seeding",
    "batch_size_of",
    "loader_plans",
    "set_epoch",
]
