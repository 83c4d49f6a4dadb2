"""A run whose progress is looked at from outside; arguments are `name=value`, see `main`."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch

import fulmen as L
from fulmen.callbacks import RichProgressBar, TQDMProgressBar
from fulmen.callbacks.progress import PlainProgress

_ARGS = dict(argument.split("=", 1) for argument in sys.argv[1:])
_BREAKS = _ARGS.get("break", "").split(",")


def stop_here(where: str) -> None:
    if where in _BREAKS:
        _BREAKS.remove(where)
        answer = 42  # noqa: F841 (looked at in the debugger)
        if _ARGS.get("how") == "set_trace":
            import pdb

            pdb.set_trace()
        else:
            breakpoint()
        time.sleep(0.15)  # the bar is due again


class Net(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        stop_here(f"training_step{batch_idx}")
        time.sleep(float(_ARGS.get("sleep", "0")))
        loss = self.layer(batch).square().mean()
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        stop_here("validation_step")
        time.sleep(float(_ARGS.get("val_sleep", "0")))
        self.log("val_loss", self.layer(batch).square().mean(), prog_bar=True)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        stop_here("test_step")

    def predict_step(self, batch: Any, batch_idx: int) -> Any:
        stop_here("predict_step")
        return self.layer(batch)

    def setup(self, stage: str) -> None:
        stop_here("setup")

    def on_train_epoch_start(self) -> None:
        stop_here("on_train_epoch_start")

    def on_validation_start(self) -> None:
        stop_here("on_validation_start")

    def on_train_end(self) -> None:
        stop_here("on_train_end")

    def on_fit_end(self) -> None:
        stop_here("on_fit_end")

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def own_debugger(*args: Any, **kwargs: Any) -> None:
    """What PYTHONBREAKPOINT may name: says which frame called it."""
    print(f"OWN DEBUGGER in {sys._getframe(1).f_code.co_name} {args} {kwargs}")


def main() -> None:
    bars = {"rich": lambda: RichProgressBar(total_bar=True), "tqdm": lambda: TQDMProgressBar(total_bar=True)}
    bars["plain"] = lambda: PlainProgress(interval=float(_ARGS.get("interval", "10")))
    kind = _ARGS.get("bar")
    trainer = L.Trainer(
        max_epochs=int(_ARGS.get("epochs", "2")),
        max_steps=int(_ARGS.get("steps", "-1")),
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        callbacks=[bars[kind]()] if kind else [],
    )
    data = torch.utils.data.DataLoader(torch.randn(int(_ARGS.get("rows", "20")), 4), batch_size=2)
    hook = sys.breakpointhook
    for call in _ARGS.get("calls", "fit").split(","):
        if call == "fit":
            trainer.fit(Net(), data, data)
        else:
            getattr(trainer, call)(Net(), data)
    import pdb

    assert sys.breakpointhook is hook and pdb.Pdb.interaction.__module__ == "pdb"
    print("DONE")


if __name__ == "__main__":
    main()
