"""An optimizer that a module keeps and steps itself in automatic optimization is told of, and refused."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import fulmen as L
from fulmen.errors import FulmenWarning, MisconfigurationException

pytestmark = pytest.mark.feature("O-04")


class Net(L.LightningModule):
    def __init__(self, *, steps: bool, returned: bool, inside: str = "plain", apart: bool = False) -> None:
        super().__init__()
        self.layer, self.other = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD((self.other if apart else self.layer).parameters(), lr=0.1)
        self.opt: Any = {"plain": optimizer, "list": [optimizer], "dict": {"main": optimizer}}[inside]
        self.mine, self.steps, self.returned = (lambda: optimizer), steps, returned

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if self.steps:
            self.mine().step()
        return self.layer(batch[0]).mean()

    def configure_optimizers(self) -> Any:
        return self.mine() if self.returned else torch.optim.SGD(self.layer.parameters(), lr=0.1)


def fit(model: Any) -> Any:
    trainer = L.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(TensorDataset(torch.randn(4, 4)), batch_size=2))
    return trainer


@pytest.mark.parametrize(("inside", "name"), [("plain", "opt"), ("list", r"opt\[0\]"), ("dict", r"opt\['main'\]")])
@pytest.mark.parametrize("returned", [False, True])
@pytest.mark.filterwarnings("ignore:.*W605")
def test_stepping_it_in_the_training_step_is_an_error_that_names_it(inside: str, name: str, returned: bool) -> None:
    model = Net(steps=True, returned=returned, inside=inside)
    with pytest.raises(MisconfigurationException, match=rf"Net\.training_step called `self\.{name}\.step\(\)`.*twice"):
        fit(model)


def test_the_attribute_alone_is_a_finding() -> None:
    with pytest.warns(FulmenWarning, match=r"Net\.opt is an optimizer of parameters.*configure_optimizers.*W605"):
        fit(Net(steps=False, returned=False))


@pytest.mark.parametrize(
    "model",
    [Net(steps=False, returned=True), Net(steps=True, returned=False, apart=True)],
    ids=["the one returned", "other parameters"],
)
def test_what_is_right_is_left_alone(model: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer = fit(model)
    assert trainer.global_step == 2


def test_the_hook_is_gone_after_the_run() -> None:
    model = Net(steps=False, returned=True)
    fit(model)
    assert not model.opt._optimizer_step_pre_hooks
    model.opt.step()
