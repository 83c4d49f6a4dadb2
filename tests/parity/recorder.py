"""Notes which hook is called when, for any framework of Lightning's programming model.

One line per call: `cb.` callback, `lm.` module, `dm.` data module, `opt.` the real torch optimizer. All hooks are
overridden by a method that notes its name and calls the parent's. `setup` and `teardown` carry the stage; `lm.train` is
noted for mode True only.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

STAGES = ("train", "validation", "test", "predict")

CALLBACK_HOOKS = (
    "setup",
    "teardown",
    "on_fit_start",
    "on_fit_end",
    "on_sanity_check_start",
    "on_sanity_check_end",
    *(f"on_{s}_{w}" for s in STAGES for w in ("start", "end", "epoch_start", "epoch_end", "batch_start", "batch_end")),
    "on_exception",
    "on_save_checkpoint",
    "on_load_checkpoint",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_before_zero_grad",
    "state_dict",
    "load_state_dict",
)

TRANSFER_HOOKS = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")

MODULE_HOOKS = (
    "setup",
    "teardown",
    "on_fit_start",
    "on_fit_end",
    *(f"on_{s}_{w}" for s in STAGES for w in ("start", "end", "epoch_start", "epoch_end", "batch_start", "batch_end")),
    *(f"on_{s}_model_{w}" for s in STAGES[1:] for w in ("eval", "train")),
    "on_validation_model_zero_grad",
    "on_save_checkpoint",
    "on_load_checkpoint",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_before_zero_grad",
    "backward",
    "manual_backward",
    "optimizer_step",
    "optimizer_zero_grad",
    "lr_scheduler_step",
    "configure_callbacks",
    "configure_model",
    "configure_gradient_clipping",
    "prepare_data",
    *TRANSFER_HOOKS,
    "load_state_dict",
    "zero_grad",
    "eval",
)

DATA_HOOKS = (
    "prepare_data",
    "setup",
    "teardown",
    "load_state_dict",
    "on_exception",
)
# Steps, loaders, `configure_optimizers`, `train`, `state_dict` of the data module and of the callback are written out.


def _noting(owner: str, name: str, parent: Callable[..., Any], notes: list[str]) -> Callable[..., Any]:
    staged = name in ("setup", "teardown")

    def hook(self: Any, *args: Any, **kwargs: Any) -> Any:
        stage = kwargs.get("stage", args[-1] if args else None)
        notes.append(f"{owner}.{name}({getattr(stage, 'value', stage)})" if staged else f"{owner}.{name}")
        return parent(self, *args, **kwargs)

    hook.__name__ = name
    return hook


def noting_class(owner: str, base: type, names: tuple[str, ...], notes: list[str], body: dict[str, Any]) -> type:
    """A subclass of `base` whose hooks of `names` note themselves; `body` holds what is written out."""
    hooks = {name: _noting(owner, name, getattr(base, name), notes) for name in names if hasattr(base, name)}
    return type(f"Noting{base.__name__}", (base,), {**hooks, **body})


class NotingSGD(torch.optim.SGD):
    """The real optimizer: `zero_grad` overridden, steps noted by torch's own step hooks."""

    def __init__(self, params: Any, notes: list[str], lr: float) -> None:
        super().__init__(params, lr=lr)
        self.notes = notes
        self.register_step_pre_hook(lambda *_: notes.append("opt.step begins"))
        self.register_step_post_hook(lambda *_: notes.append("opt.step ends"))

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.notes.append("opt.zero_grad")
        super().zero_grad(set_to_none)


def make_module(L: Any, notes: list[str], *, manual: bool = False, fail_at: int | None = None) -> Any:
    """One `Linear(4, 2)`, SGD and StepLR; logs one value in validation and test."""

    def init(self: Any) -> None:
        L.LightningModule.__init__(self)
        self.layer = torch.nn.Linear(4, 2)
        self.automatic_optimization = not manual

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)

    def training_step(self: Any, batch: Any, batch_idx: int) -> torch.Tensor:
        notes.append("lm.training_step")
        if batch_idx == fail_at:
            raise RuntimeError("of the user's own")
        return self(batch[0]).sum()

    def manual_step(self: Any, batch: Any, batch_idx: int) -> None:
        notes.append("lm.training_step begins")
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self(batch[0]).sum())
        optimizer.step()
        self.lr_schedulers().step()
        notes.append("lm.training_step ends")

    def validation_step(self: Any, batch: Any, batch_idx: int) -> None:
        notes.append("lm.validation_step")
        self.log("v", self(batch[0]).sum())

    def test_step(self: Any, batch: Any, batch_idx: int) -> None:
        notes.append("lm.test_step")
        self.log("t", self(batch[0]).sum())

    def predict_step(self: Any, batch: Any, batch_idx: int) -> torch.Tensor:
        notes.append("lm.predict_step")
        return self(batch[0])

    def configure_optimizers(self: Any) -> Any:
        notes.append("lm.configure_optimizers")
        optimizer = NotingSGD(self.parameters(), notes, lr=0.1)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

    def train(self: Any, mode: bool = True) -> Any:
        if mode:
            notes.append("lm.train")
        return L.LightningModule.train(self, mode)

    body = {
        "__init__": init,
        "forward": forward,
        "training_step": manual_step if manual else training_step,
        "validation_step": validation_step,
        "test_step": test_step,
        "predict_step": predict_step,
        "configure_optimizers": configure_optimizers,
        "train": train,
    }
    return noting_class("lm", L.LightningModule, MODULE_HOOKS, notes, body)()


def make_data(L: Any, notes: list[str]) -> Any:
    """16 rows of 4 in batches of 2 for all stages; has a `state_dict`."""
    rows = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))

    def loader(name: str) -> Callable[[Any], Any]:
        def make(self: Any) -> Any:
            notes.append(f"dm.{name}_dataloader")
            return DataLoader(TensorDataset(rows), batch_size=2)

        return make

    def state_dict(self: Any) -> dict[str, int]:
        notes.append("dm.state_dict")
        return {"kept": 1}

    body = {f"{name}_dataloader": loader(name) for name in ("train", "val", "test", "predict")}
    return noting_class("dm", L.LightningDataModule, DATA_HOOKS, notes, {**body, "state_dict": state_dict})()


def make_callback(L: Any, notes: list[str]) -> Any:
    """A callback that notes every hook; has a `state_dict`."""

    def state_dict(self: Any) -> dict[str, int]:
        notes.append("cb.state_dict")
        return {"kept": 1}

    return noting_class("cb", L.Callback, CALLBACK_HOOKS, notes, {"state_dict": state_dict})()


SETTINGS: dict[str, Any] = {
    "max_epochs": 2,
    "limit_train_batches": 3,
    "limit_val_batches": 3,
    "limit_test_batches": 3,
    "limit_predict_batches": 3,
    "accumulate_grad_batches": 2,
    "num_sanity_val_steps": 2,
    "enable_checkpointing": True,
}


def record_all(framework: Any, root: Path) -> dict[str, list[str]]:
    """All recorded scenarios: file name (without ending) → lines."""
    L, traces = framework.L, {}

    def parts(notes: list[str], **module: Any) -> tuple[Any, Any, Any]:
        torch.manual_seed(0)
        return make_module(L, notes, **module), make_data(L, notes), make_callback(L, notes)

    def trainer(where: str, callback: Any, **changes: Any) -> Any:
        return framework.trainer(root / where, callbacks=[callback], **{**SETTINGS, **changes})

    notes: list[str] = []
    module, data, callback = parts(notes)
    first = trainer("auto", callback)
    # What the Trainer's constructor calls is none of the run's.
    for name, run in (
        ("fit_auto_accum2", lambda: first.fit(module, data)),
        ("validate", lambda: first.validate(module, data, verbose=False)),
        ("test", lambda: first.test(module, data, verbose=False)),
        ("predict", lambda: first.predict(module, data)),
    ):
        notes.clear()
        run()
        traces[name] = list(notes)

    again: list[str] = []
    module, data, callback = parts(again)
    best = first.checkpoint_callback.best_model_path
    trainer("resume", callback, max_epochs=3).fit(module, data, ckpt_path=best)
    traces["fit_resume_one_epoch"] = again

    manual: list[str] = []
    module, data, callback = parts(manual, manual=True)
    trainer("manual", callback, accumulate_grad_batches=1).fit(module, data)
    traces["fit_manual"] = manual

    interval: list[str] = []
    module, data, callback = parts(interval)
    changes = {"max_epochs": 1, "num_sanity_val_steps": 0, "accumulate_grad_batches": 1}
    trainer("interval", callback, **changes, val_check_interval=2, limit_train_batches=4, limit_val_batches=1).fit(
        module, data
    )
    traces["fit_val_check_interval_2_of_4"] = interval

    raising: list[str] = []
    module, data, callback = parts(raising, fail_at=1)
    try:
        trainer("exception", callback, max_epochs=1, num_sanity_val_steps=0).fit(module, data)
    except RuntimeError as error:
        assert "of the user's own" in str(error)
    traces["fit_exception"] = raising
    return traces
