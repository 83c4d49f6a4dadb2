"""Misspelt hooks are pointed out when a run begins; helpers of the user's are not."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import fulmen as L
from tests.integration.toys import Toy, fit, loader, quiet

MISSPELT = [
    ("trainng_step", "training_step"),
    ("training_stp", "training_step"),
    ("validation_setp", "validation_step"),
    ("validaton_step", "validation_step"),
    ("tets_step", "test_step"),
    ("predict_steps", "predict_step"),
    ("configure_optimisers", "configure_optimizers"),
    ("configure_optimizer", "configure_optimizers"),
    ("on_train_epoch_strat", "on_train_epoch_start"),
    ("on_validation_epoch_ends", "on_validation_epoch_end"),
    ("on_training_epoch_end", "on_train_epoch_end"),
    ("on_train_batch_ends", "on_train_batch_end"),
    ("on_fit_begin", None),
    ("train_dataloaders", "train_dataloader"),
    ("val_dataloaders", "val_dataloader"),
    ("on_save_checkpiont", "on_save_checkpoint"),
    ("on_before_optimizer_steps", "on_before_optimizer_step"),
    ("configure_models", "configure_model"),
]

INNOCENT = [
    "train_step",
    "val_step",
    "eval_step",
    "on_step",
    "compute_loss",
    "shared_step",
    "_shared_step",
    "common_step",
    "forward_step",
    "step",
    "loss",
    "encode",
    "decode",
    "sample",
    "predict",
    "test",
    "train_loader",
    "val_loader",
    "get_dataloader",
    "configure_metrics",
    "configure_scheduler",
    "configure_loss",
    "setup_model",
    "setup_metrics",
    "on_epoch",
    "on_done",
    "on_image",
    "prepare_batch",
    "prepare_inputs",
    "log_images",
    "backward_step",
    "optimizer",
    "state",
    "load_weights",
    "transfer",
    "validation_loss",
    "training_loss",
    "test_metrics",
    "predict_logits",
]


def module_with(name: str, value: Any = lambda self, *args: None) -> Any:
    return type("Model", (Toy,), {name: value, "__module__": "users.models"})()


@pytest.mark.feature("M-01", "M-03")
@pytest.mark.parametrize(("name", "meant"), MISSPELT)
def test_a_misspelt_hook_is_a_warning_with_the_suggestion(name: str, meant: str | None) -> None:
    if meant is None:
        fit(module_with(name), loader(2))
        return
    with pytest.warns(UserWarning, match=rf"Model.{name} is never called: it is no hook.*Did you mean '{meant}'") as w:
        fit(module_with(name), loader(2))
    assert len([warning for warning in w if "FULMEN-W406" in str(warning.message)]) == 1


@pytest.mark.feature("M-01", "M-03")
def test_it_comes_at_the_start_and_once() -> None:
    order: list[str] = []

    class Model(Toy):
        __module__ = "users.models"

        def trainng_step(self, *args: Any) -> None: ...

        def setup(self, stage: str) -> None:
            order.append("setup")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda text, *rest, **kwargs: "W406" in str(text) and order.append("warning")
        trainer = quiet()
        trainer.fit(Model(), loader(2))
        trainer.validate(Model(), loader(2), verbose=False)
    assert order == ["warning", "setup", "setup"]


@pytest.mark.feature("M-01", "M-03")
@pytest.mark.parametrize("name", INNOCENT)
@pytest.mark.filterwarnings("ignore:.*returned no loss in the whole epoch")
def test_a_helper_of_another_name_is_no_warning(name: str) -> None:
    fit(module_with(name), loader(2))


@pytest.mark.feature("M-01", "M-03")
def test_attributes_that_are_no_methods_are_no_warning() -> None:
    fit(module_with("training_steps", 3), loader(2))
    fit(module_with("training_steps", property(lambda self: 3)), loader(2))

    module = Toy()
    module.train_dataloaders = torch.nn.Linear(1, 1)
    fit(module, loader(2))


@pytest.mark.feature("M-01", "M-03")
def test_a_helper_beside_the_hook_itself_is_no_warning() -> None:
    class Model(Toy):
        __module__ = "users.models"

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.training_steps(batch)

        def training_steps(self, batch: Any) -> Any:
            return self.loss(batch)

    fit(Model(), loader(2))


@pytest.mark.feature("M-01", "M-03", "K-01")
def test_data_modules_and_callbacks_are_looked_at_too() -> None:
    class Data(L.LightningDataModule):
        __module__ = "users.data"

        def train_dataloader(self) -> Any:
            return loader(2)

        def val_dataloadr(self) -> Any: ...

    class Callback(L.Callback):
        __module__ = "users.callbacks"

        def on_train_epoch_ends(self, *args: Any) -> None: ...

    with pytest.warns(UserWarning, match=r"Data.val_dataloadr is never called.*Did you mean 'val_dataloader'"):
        fit(Toy(), Data())
    with pytest.warns(UserWarning, match=r"Callback.on_train_epoch_ends.*Did you mean 'on_train_epoch_end'"):
        fit(Toy(), loader(2), callbacks=Callback())
