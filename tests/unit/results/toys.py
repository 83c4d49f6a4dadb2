"""A store of logged values without a run around it."""

from __future__ import annotations

from typing import Any

from fulmen.engine.hooks.running import Cursor
from fulmen.engine.hooks.spec import SPECS
from fulmen.engine.results.flags import FLAG_NAMES
from fulmen.engine.results.store import Results, View

DEFAULTS: dict[str, Any] = {
    "prog_bar": False,
    "logger": None,
    "on_step": None,
    "on_epoch": None,
    "reduce_fx": "mean",
    "enable_graph": False,
    "sync_dist": False,
    "sync_dist_group": None,
    "add_dataloader_idx": True,
    "metric_attribute": None,
    "rank_zero_only": False,
    "axis": None,
    "reduce_loaders": None,
}


class Store:
    """`Results` in one hook, logged to as a module does."""

    def __init__(
        self, hook: str | None = "training_step", *, training: bool = True, keep_integers: bool = True
    ) -> None:
        self.cursor = Cursor()
        self.hook(hook)
        self.lookups: list[Any] = []
        self.size: float = 1
        self.results = Results(self.cursor, training=training, keep_integers=keep_integers, batch_size=self._batch_size)

    def hook(self, name: str | None) -> None:
        self.cursor.hook = SPECS[name] if name is not None else None

    def _batch_size(self, batch: Any) -> float:
        self.lookups.append(batch)
        return self.size

    def batch(self, batch: Any, dataloader_idx: int | None = None) -> None:
        self.cursor.batch = batch
        self.results.start_batch(dataloader_idx)

    def log(self, name: str, value: Any, batch_size: int | None = None, **flags: Any) -> None:
        given = {**DEFAULTS, **flags}
        self.results.log(name, value, tuple(given[flag] for flag in FLAG_NAMES), batch_size)

    def epoch(self) -> View:
        return self.results.view(on_step=False)

    def step(self) -> View:
        return self.results.view(on_step=True)

    def epoch_value(self, name: str) -> Any:
        return self.epoch().log[name]
