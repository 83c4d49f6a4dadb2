"""Parameter groups, frozen layers, rates per group, and groups added while training, through a resume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam

import fulmen as L
from fulmen.errors import MisconfigurationException
from tests.integration.toys import fit, loader, quiet, weights

pytestmark = pytest.mark.feature("O-09", "C-02")


class Deep(L.LightningModule):
    """Three layers; `configure` gives the optimizer, `change` may alter it at the start of each epoch."""

    def __init__(self, configure: Callable[[Any], Any], change: Callable[[Any, int], None] | None = None) -> None:
        super().__init__()
        torch.manual_seed(8)
        self.first, self.second, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)
        self.configure, self.change = configure, change

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        hidden = self.second(self.first(batch[0]).tanh()).tanh()
        return nn.functional.mse_loss(self.head(hidden), batch[1])

    def on_train_epoch_start(self) -> None:
        if self.change is not None:
            self.change(self, self.current_epoch)

    def configure_optimizers(self) -> Any:
        return self.configure(self)


def head_only(module: Any) -> Any:
    module.first.requires_grad_(False)
    module.second.requires_grad_(False)
    return Adam(module.head.parameters(), lr=0.05)


def head_by_name(module: Any) -> Any:
    head_only(module)
    return Adam(module.head.named_parameters(), lr=0.05)


def with_scheduler(module: Any) -> Any:
    optimizer = head_only(module)
    return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)]


def all_frozen_but_head(module: Any) -> Any:
    head_only(module)
    return SGD(module.parameters(), lr=0.05, momentum=0.9)


def unfreeze_one_by_one(module: Any, epoch: int) -> None:
    """Adds a layer in epoch 1 and another in epoch 2, each with a rate of its own."""
    for at, layer, rate in ((1, module.second, 0.01), (2, module.first, 0.002)):
        if epoch == at:
            layer.requires_grad_(True)
            module.optimizers().add_param_group({"params": list(layer.parameters()), "lr": rate})


def unfreeze_by_name(module: Any, epoch: int) -> None:
    if epoch == 1:
        module.second.requires_grad_(True)
        module.optimizers().add_param_group({"params": list(module.second.named_parameters()), "lr": 0.01})


def unfreeze_in_place(module: Any, epoch: int) -> None:
    if epoch == 1:
        module.second.requires_grad_(True)


def grow_a_group(module: Any, epoch: int) -> None:
    if epoch == 1:
        module.second.requires_grad_(True)
        module.optimizers().param_groups[0]["params"].extend(module.second.parameters())


WAYS: dict[str, tuple[Any, Any, list[int]]] = {
    "two groups added": (head_only, unfreeze_one_by_one, [2, 2, 2]),
    "with a scheduler": (with_scheduler, unfreeze_one_by_one, [2, 2, 2]),
    "groups with names": (head_by_name, unfreeze_by_name, [2, 2]),
    "unfrozen in place": (all_frozen_but_head, unfreeze_in_place, [6]),
    "a group that grew": (head_only, grow_a_group, [4]),
}


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("way", WAYS)
def test_resume_restores_groups_without_work_of_the_user(way: str, at: int, tmp_path: Path) -> None:
    configure, change, sizes = WAYS[way]

    class Saving(Deep):
        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            if self.current_epoch == at and batch_idx == 2:
                self.trainer.save_checkpoint(tmp_path / "here.ckpt")

    whole = Saving(configure, change)
    first = fit(whole, max_epochs=4)
    resumed = Deep(configure, change)
    second = quiet(max_epochs=4)
    second.fit(resumed, loader(), ckpt_path=tmp_path / "here.ckpt")
    assert torch.equal(weights(resumed), weights(whole))
    assert not torch.equal(whole.second.weight, Deep(configure).second.weight), "the layer must have been trained"
    for trainer in (first, second):
        assert [len(group["params"]) for group in trainer.optimizers[0].param_groups] == sizes
    rates = [[group["lr"] for group in trainer.optimizers[0].param_groups] for trainer in (first, second)]
    assert rates[0] == rates[1]
    assert [p.requires_grad for p in resumed.parameters()] == [p.requires_grad for p in whole.parameters()]


def test_rates_per_group_and_frozen_layers() -> None:
    def configure(module: Any) -> Any:
        module.second.requires_grad_(False)
        return SGD([{"params": module.first.parameters(), "lr": 0.0}, {"params": module.head.parameters()}], lr=0.1)

    module, before = Deep(configure), Deep(configure)
    fit(module)
    assert torch.equal(module.first.weight, before.first.weight)
    assert torch.equal(module.second.weight, before.second.weight)
    assert module.second.weight.grad is None
    assert not torch.equal(module.head.weight, before.head.weight)


def test_the_order_of_groups_may_change_between_runs(tmp_path: Path) -> None:
    """States go to the parameters that they belong to, also if the layers are given in another order."""

    def configure(*names: str) -> Callable[[Any], Any]:
        return lambda m: Adam([p for name in names for p in getattr(m, name).parameters()], lr=0.05)

    path = tmp_path / "here.ckpt"
    whole = Deep(configure("first", "second", "head"))
    fit(whole, max_epochs=1).save_checkpoint(path)
    fit_on = [Deep(configure(*names)) for names in (("first", "second", "head"), ("second", "head", "first"))]
    for module in fit_on:
        quiet(max_epochs=2).fit(module, loader(), ckpt_path=path)
    assert torch.equal(weights(fit_on[0]), weights(fit_on[1]))


def both_layers(module: Any) -> Any:
    return Adam([*module.second.parameters(), *module.head.parameters()], lr=0.05)


def two_groups(module: Any) -> Any:
    return Adam([{"params": module.head.parameters()}, {"params": module.second.parameters()}], lr=0.05)


class Renamed(Deep):
    """Has lost a layer that the checkpoint's optimizer trains."""

    strict_loading = False

    def __init__(self, configure: Callable[[Any], Any]) -> None:
        super().__init__(configure)
        self.other = self.head
        del self.head

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.other(self.first(batch[0])).mean()


@pytest.mark.filterwarnings("ignore:.*were passed over")
@pytest.mark.parametrize(
    ("module", "words"),
    [
        (
            lambda: Deep(both_layers),
            ("the groups of Adam cannot be rebuilt", "not in the checkpoint's: 'second.weight'"),
        ),
        (lambda: Deep(two_groups), ("the state does not fit Adam", "parameter groups")),
        (
            lambda: Renamed(lambda m: Adam(m.other.parameters(), lr=0.05)),
            ("the groups of Adam cannot be rebuilt", "not in the module: 'head.weight', 'head.bias'"),
        ),
    ],
)
def test_groups_that_cannot_be_rebuilt(module: Any, words: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "here.ckpt"
    fit(Deep(head_only)).save_checkpoint(path)
    with pytest.raises(MisconfigurationException) as caught:
        quiet(max_epochs=2).fit(module(), loader(), ckpt_path=path)
    for word in (*words, "load_from_checkpoint"):
        assert word in str(caught.value)
