"""Small trainings that are run on every framework and compared number for number.

A scenario makes its module from the framework's module `L`, its loaders, and says which Trainer arguments it wants.
`train` runs it and keeps what is compared: every step's loss, rates, counters, logged values, gradients, weights.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from tests.parity.frameworks import Framework, quiet

SEED = 7


@dataclass
class Kept:
    """What a training leaves behind for the comparison."""

    losses: list[Tensor] = field(default_factory=list)
    rates: list[list[float]] = field(default_factory=list)
    counters: list[tuple[Any, ...]] = field(default_factory=list)
    values: list[tuple[str, dict[str, Tensor]]] = field(default_factory=list)
    gradients: list[list[Tensor]] = field(default_factory=list)
    weights: dict[str, Tensor] = field(default_factory=dict)
    optimizer_states: list[Any] = field(default_factory=list)
    end: tuple[Any, ...] = ()


@dataclass
class Scenario:
    """One training.

    Attributes:
        module: Builds the module, given the framework's module and where to put losses.
        data: Gives the arguments of `fit` after the module.
        trainer: Trainer arguments.
        callbacks: Builds further callbacks, given the framework's module.
        listed: Numbers that differ under `Policy.right` and have a test of their own there.
    """

    module: Callable[[Any, list[Tensor]], Any]
    data: Callable[[], dict[str, Any]]
    trainer: dict[str, Any] = field(default_factory=dict)
    callbacks: Callable[[Any], list[Any]] = field(default=lambda L: [])
    listed: bool = False


def keeper(L: Any, kept: Kept) -> Any:
    """A callback that keeps rates, counters, gradients and logged values."""

    class Keeper(L.Callback):  # type: ignore[name-defined, misc]  # the base class depends on the framework
        def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
            grads = [p.grad for group in optimizer.param_groups for p in group["params"]]
            kept.gradients.append([g.clone() for g in grads if g is not None])

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            kept.rates.append([group["lr"] for optimizer in trainer.optimizers for group in optimizer.param_groups])
            kept.counters.append(
                ("batch", batch_idx, trainer.global_step, trainer.current_epoch, bool(trainer.is_last_batch))
            )
            self._keep("batch", trainer)

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            kept.counters.append(("validation", bool(trainer.sanity_checking), trainer.global_step))
            self._keep("validation", trainer)

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            self._keep("epoch", trainer)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            self._keep("end", trainer)

        def _keep(self, where: str, trainer: Any) -> None:
            metrics = {name: torch.as_tensor(value).clone() for name, value in trainer.callback_metrics.items()}
            kept.values.append((f"{where} in epoch {trainer.current_epoch}", metrics))

    return Keeper()


def train(framework: Framework, scenario: Scenario, root: Path) -> Kept:
    """Run the scenario from the same seed as everywhere."""
    kept = Kept()
    with quiet():
        framework.L.seed_everything(SEED, workers=True, verbose=False)
        module = scenario.module(framework.L, kept.losses)
        trainer = framework.trainer(
            root,
            callbacks=[*scenario.callbacks(framework.L), keeper(framework.L, kept)],
            **{"max_epochs": 3, **scenario.trainer},
        )
        trainer.fit(module, **scenario.data())
    kept.weights = {name: value.clone() for name, value in module.state_dict().items()}
    kept.optimizer_states = [copy.deepcopy(optimizer.state_dict()) for optimizer in trainer.optimizers]
    stopped = [callback.stopped_epoch for callback in trainer.early_stopping_callbacks]
    kept.end = (trainer.global_step, trainer.current_epoch, bool(trainer.should_stop), stopped)
    return kept


# --------------------------------------------------------------------------------------------------------------- data


def rows(number: int, shape: tuple[int, ...] = (8,), classes: int = 3, seed: int = 1) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(number, *shape, generator=generator)
    return TensorDataset(x, (x.flatten(1).sum(1) * 1000).long() % classes)


class Augmented(Dataset[Any]):
    """Adds noise from the global generator when a sample is read."""

    def __init__(self, base: TensorDataset) -> None:
        self.base = base

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, index: int) -> Any:
        x, y = self.base[index]
        return x + 0.1 * torch.randn_like(x), y


class Stream(IterableDataset[Any]):
    """Samples without a length."""

    def __init__(self, base: TensorDataset) -> None:
        self.base = base

    def __iter__(self) -> Iterator[Any]:
        for index in range(len(self.base)):
            yield self.base[index]


def loaders(**changes: Any) -> Callable[[], dict[str, Any]]:
    """A shuffled training loader and a validation loader with a shorter last batch."""

    def make() -> dict[str, Any]:
        train = DataLoader(**{"dataset": rows(40), "batch_size": 4, "shuffle": True, **changes})
        return {"train_dataloaders": train, "val_dataloaders": DataLoader(rows(11, seed=2), batch_size=4)}

    return make


def images() -> dict[str, Any]:
    return {
        "train_dataloaders": DataLoader(rows(48, (1, 8, 8)), batch_size=6, shuffle=True),
        "val_dataloaders": DataLoader(rows(14, (1, 8, 8), seed=2), batch_size=6),
    }


def train_only(**changes: Any) -> Callable[[], dict[str, Any]]:
    def make() -> dict[str, Any]:
        return {"train_dataloaders": loaders(**changes)()["train_dataloaders"]}

    return make


def several_validation_loaders() -> dict[str, Any]:
    made = loaders()()
    made["val_dataloaders"] = [DataLoader(rows(n, seed=n), batch_size=b) for n, b in ((7, 3), (10, 4))]
    return made


# ------------------------------------------------------------------------------------------------------------ modules


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))


def conv() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(36, 3)
    )


Configure = Callable[[Any], Any]


def sgd(module: Any) -> Any:
    return torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)


def adam(module: Any) -> Any:
    return torch.optim.Adam(module.parameters(), lr=0.01)


def step_lr(module: Any) -> Any:
    optimizer = sgd(module)
    return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)]


def one_cycle(module: Any) -> Any:
    optimizer = sgd(module)
    steps = module.trainer.estimated_stepping_batches
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=int(steps))
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def every_second_step(module: Any) -> Any:
    optimizer = sgd(module)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    return [optimizer], [{"scheduler": scheduler, "interval": "step", "frequency": 2}]


def plateau(module: Any) -> Any:
    optimizer = adam(module)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.5, factor=0.3)
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": "val_loss"}}


def groups(module: Any) -> Any:
    for param in module.net[0].parameters():
        param.requires_grad_(False)
    return torch.optim.AdamW([{"params": [module.net[3].weight], "lr": 0.02}, {"params": [module.net[3].bias]}])


def plateau_by_step(module: Any) -> Any:
    optimizer = adam(module)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, threshold=0.1, factor=0.9)
    config = {"scheduler": scheduler, "interval": "step", "frequency": 5, "monitor": "loss"}
    return {"optimizer": optimizer, "lr_scheduler": config}


def lenient_plateau(module: Any) -> Any:
    found = plateau(module)
    found["lr_scheduler"]["strict"] = False
    return found


def every_third_step(module: Any) -> Any:
    optimizer = sgd(module)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    return [optimizer], [{"scheduler": scheduler, "interval": "step", "frequency": 3}]


def several_schedulers(module: Any) -> Any:
    optimizer = sgd(module)
    lr = torch.optim.lr_scheduler
    watching = lr.ReduceLROnPlateau(optimizer, patience=0, threshold=0.5, factor=0.7)
    return [optimizer], [
        {"scheduler": lr.ExponentialLR(optimizer, 0.99), "interval": "step"},
        {"scheduler": lr.StepLR(optimizer, 1, gamma=0.8), "frequency": 2},
        {"scheduler": watching, "monitor": "val_loss"},
    ]


def wolfe(module: Any) -> Any:
    return torch.optim.LBFGS(module.parameters(), lr=0.5, max_iter=4, line_search_fn="strong_wolfe")


def lbfgs(module: Any) -> Any:
    return torch.optim.LBFGS(module.parameters(), lr=0.1, max_iter=3)


def classifier(net: Callable[[], nn.Module] = mlp, configure: Configure = adam, **body: Any) -> Callable[..., Any]:
    """A module that logs in every way; `body` replaces or adds methods."""

    def make(L: Any, losses: list[Tensor]) -> Any:
        def init(self: Any) -> None:
            L.LightningModule.__init__(self)
            self.net = net()

        def loss_of(self: Any, batch: Any) -> Tensor:
            x, y = batch
            return F.cross_entropy(self.net(x.to(self.dtype) if x.is_floating_point() else x), y)

        def training_step(self: Any, batch: Any, batch_idx: int) -> Tensor:
            loss = self.loss_of(batch)
            losses.append(loss.detach().clone())
            self.log("loss", loss, prog_bar=True)
            self.log("both", loss, on_step=True, on_epoch=True)
            self.log_dict({"mean_a": loss * 2, "mean_b": float(batch_idx)}, on_step=False, on_epoch=True)
            self.log("most_epoch", loss, on_step=False, on_epoch=True, reduce_fx="max")
            return loss

        def validation_step(self: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            self.log("val_loss", self.loss_of(batch))
            self.log("val_both", self.loss_of(batch), on_step=True, on_epoch=True)

        namespace = {
            "losses": losses,
            "__init__": init,
            "loss_of": loss_of,
            "training_step": training_step,
            "validation_step": validation_step,
            "configure_optimizers": configure,
        }
        return type("Classifier", (L.LightningModule,), {**namespace, **body})()

    return make


def warm_up(self: Any, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
    """An `optimizer_step` of the user's own, as in the documentation of learning rate warm-up."""
    for group in optimizer.param_groups:
        group["lr"] = 0.01 * min(1.0, (self.trainer.global_step + 1) / 8)
    optimizer.step(closure=optimizer_closure)


def dict_step(self: Any, batch: Any, batch_idx: int) -> dict[str, Tensor]:
    loss = self.loss_of(batch)
    self.losses.append(loss.detach().clone())
    self.log("loss", loss)
    return {"loss": loss, "further": loss.detach()}


def skips_rest(self: Any, batch: Any, batch_idx: int) -> int | None:
    return -1 if batch_idx == 4 else None


def gan(L: Any, losses: list[Tensor]) -> Any:
    """Two optimizers, toggled, by hand."""

    class Gan(L.LightningModule):  # type: ignore[name-defined, misc]  # the base class depends on the framework
        def __init__(self) -> None:
            super().__init__()
            self.generator = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8))
            self.critic = nn.Sequential(nn.Linear(8, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
            self.automatic_optimization = False

        def training_step(self, batch: Any, batch_idx: int) -> None:
            real = batch[0]
            opt_g, opt_d = self.optimizers()
            noise = torch.randn(len(real), 4)
            ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)

            self.toggle_optimizer(opt_g)
            loss_g = F.binary_cross_entropy_with_logits(self.critic(self.generator(noise)), ones)
            losses.append(loss_g.detach().clone())
            self.log("g", loss_g, on_step=True, on_epoch=True)
            self.manual_backward(loss_g)
            opt_g.step()
            opt_g.zero_grad()
            self.untoggle_optimizer(opt_g)

            self.toggle_optimizer(opt_d)
            loss_d = F.binary_cross_entropy_with_logits(self.critic(real), ones)
            loss_d = loss_d + F.binary_cross_entropy_with_logits(self.critic(self.generator(noise).detach()), zeros)
            losses.append(loss_d.detach().clone())
            self.log("d", loss_d)
            self.manual_backward(loss_d)
            self.clip_gradients(opt_d, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
            opt_d.step()
            opt_d.zero_grad()
            self.untoggle_optimizer(opt_d)
            if self.trainer.is_last_batch:
                for scheduler in self.lr_schedulers():
                    scheduler.step()

        def configure_optimizers(self) -> Any:
            optimizers = [torch.optim.Adam(net.parameters(), lr=0.01) for net in (self.generator, self.critic)]
            return optimizers, [torch.optim.lr_scheduler.StepLR(o, 1, gamma=0.5) for o in optimizers]

    return Gan()


def two_by_hand(L: Any, losses: list[Tensor]) -> Any:
    """Two optimizers by hand: accumulation in the step, a scheduler per update, one per epoch, one that watches."""

    class Two(L.LightningModule):  # type: ignore[name-defined, misc]  # the base class depends on the framework
        def __init__(self) -> None:
            super().__init__()
            self.trunk, self.head = nn.Linear(8, 6), nn.Linear(6, 3)
            self.automatic_optimization = False

        def loss(self, batch: Any) -> Tensor:
            return F.cross_entropy(self.head(self.trunk(batch[0]).relu()), batch[1])

        def training_step(self, batch: Any, batch_idx: int) -> None:
            slow, fast = self.optimizers()
            by_update, by_epoch, _ = self.lr_schedulers()
            loss = self.loss(batch)
            losses.append(loss.detach().clone())
            self.log("loss", loss, on_step=True, on_epoch=True)
            self.manual_backward(loss)
            fast.step()
            fast.zero_grad()
            if batch_idx % 3 == 2:
                self.clip_gradients(slow, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
                slow.step()
                slow.zero_grad()
                by_update.step()
            if self.trainer.is_last_batch:
                by_epoch.step()

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("val_loss", self.loss(batch))

        def on_validation_epoch_end(self) -> None:
            if not self.trainer.sanity_checking:
                self.lr_schedulers()[2].step(self.trainer.callback_metrics["val_loss"])

        def configure_optimizers(self) -> Any:
            slow, fast = sgd(self.trunk), adam(self.head)
            lr = torch.optim.lr_scheduler
            watching = lr.ReduceLROnPlateau(fast, patience=0, threshold=0.5, factor=0.5)
            by_update, by_epoch = lr.ExponentialLR(slow, 0.9), lr.StepLR(fast, 1, gamma=0.7)
            return [slow, fast], [by_update, by_epoch, {"scheduler": watching, "monitor": "val_loss"}]

    return Two()


def gan_in_turns(L: Any, losses: list[Tensor]) -> Any:
    """A critic in each batch, a generator in every third, by hand."""
    made = gan(L, losses)

    def training_step(self: Any, batch: Any, batch_idx: int) -> None:
        opt_g, opt_d = self.optimizers()
        real = batch[0]
        fake = self.generator(torch.randn(len(real), 4))
        loss_d = self.critic(fake.detach()).mean() - self.critic(real).mean()
        losses.append(loss_d.detach().clone())
        opt_d.zero_grad()
        self.manual_backward(loss_d)
        opt_d.step()
        if batch_idx % 3 == 0:
            with opt_g.toggle_model():
                loss_g = -self.critic(self.generator(torch.randn(len(real), 4))).mean()
                losses.append(loss_g.detach().clone())
                opt_g.zero_grad()
                self.manual_backward(loss_g)
                opt_g.step()

    return type("GanInTurns", (type(made),), {"training_step": training_step})()


def leaves_out(self: Any, batch: Any, batch_idx: int) -> Tensor | None:
    """No loss in some batches."""
    loss: Tensor = self.loss_of(batch)
    self.losses.append(loss.detach().clone())
    return None if batch_idx % 4 == 1 else loss


def early_stopping(L: Any) -> list[Any]:
    return [L.callbacks.EarlyStopping("val_loss", patience=1, min_delta=0.05)]


SCENARIOS: dict[str, Scenario] = {
    "mlp with dropout": Scenario(classifier(), loaders()),
    "conv net with batch norm": Scenario(classifier(conv, sgd), images),
    "shuffled, StepLR": Scenario(classifier(configure=step_lr), loaders()),
    "OneCycleLR per step": Scenario(classifier(configure=one_cycle), loaders()),
    "scheduler every second step": Scenario(classifier(configure=every_second_step), loaders()),
    "accumulation": Scenario(classifier(configure=one_cycle), loaders(), {"accumulate_grad_batches": 2}),
    "accumulation, partial window": Scenario(
        classifier(configure=step_lr), loaders(), {"accumulate_grad_batches": 3}, listed=True
    ),
    "GAN by hand": Scenario(gan, loaders(), listed=True),
    "clipping by norm": Scenario(classifier(), loaders(), {"gradient_clip_val": 0.3}),
    "clipping by value": Scenario(
        classifier(configure=sgd), loaders(), {"gradient_clip_val": 0.02, "gradient_clip_algorithm": "value"}
    ),
    "plateau": Scenario(classifier(configure=plateau), loaders(), {"max_epochs": 5}),
    "validation twice an epoch": Scenario(classifier(), loaders(), {"val_check_interval": 0.5}),
    "validation across epochs": Scenario(
        classifier(), loaders(), {"val_check_interval": 7, "check_val_every_n_epoch": None}
    ),
    "validation every second epoch": Scenario(classifier(), loaders(), {"check_val_every_n_epoch": 2}),
    "bf16-mixed": Scenario(classifier(configure=step_lr), loaders(), {"precision": "bf16-mixed"}),
    "16-mixed on CPU": Scenario(classifier(), loaders(), {"precision": "16-mixed"}, listed=True),
    "64-true": Scenario(classifier(), loaders(), {"precision": "64-true"}),
    "bf16-true": Scenario(classifier(), loaders(), {"precision": "bf16-true"}),
    "several validation loaders": Scenario(classifier(), several_validation_loaders),
    "no validation": Scenario(classifier(), train_only()),
    "IterableDataset": Scenario(classifier(), loaders(dataset=Stream(rows(26)), shuffle=False)),
    "IterableDataset, validation by batches": Scenario(
        classifier(), loaders(dataset=Stream(rows(26)), shuffle=False), {"val_check_interval": 3}
    ),
    "noise from the global generator": Scenario(classifier(), loaders(dataset=Augmented(rows(24)))),
    "two workers": Scenario(classifier(), loaders(dataset=Augmented(rows(24)), num_workers=2), {"max_epochs": 2}),
    "limits": Scenario(classifier(), loaders(), {"limit_train_batches": 0.5, "limit_val_batches": 2}),
    "fast_dev_run": Scenario(classifier(), loaders(), {"fast_dev_run": 2}),
    "max_steps inside an epoch": Scenario(classifier(), loaders(), {"max_steps": 13, "max_epochs": -1}, listed=True),
    "min_steps over max_epochs": Scenario(classifier(), loaders(), {"max_steps": 25, "min_steps": 12}, listed=True),
    "EarlyStopping": Scenario(classifier(), loaders(), {"max_epochs": 12}, early_stopping),
    "EarlyStopping, min_epochs": Scenario(
        classifier(configure=sgd), loaders(), {"max_epochs": 12, "min_epochs": 6}, early_stopping
    ),
    "L-BFGS": Scenario(classifier(configure=lbfgs), loaders()),
    "L-BFGS with line search": Scenario(classifier(configure=wolfe), loaders()),
    "L-BFGS with accumulation": Scenario(
        classifier(configure=lbfgs), loaders(), {"accumulate_grad_batches": 2}, listed=True
    ),
    "L-BFGS with clipping": Scenario(classifier(configure=lbfgs), loaders(), {"gradient_clip_val": 0.3}),
    "two optimizers by hand, three schedulers": Scenario(two_by_hand, loaders(), listed=True),
    "GAN by hand, in turns": Scenario(gan_in_turns, loaders(), listed=True),
    "several schedulers": Scenario(classifier(configure=several_schedulers), loaders(), {"max_epochs": 5}),
    "plateau per step": Scenario(classifier(configure=plateau_by_step), loaders()),
    "plateau, validation every second epoch": Scenario(
        classifier(configure=lenient_plateau), loaders(), {"max_epochs": 6, "check_val_every_n_epoch": 2}, listed=True
    ),
    "scheduler every third step, accumulation": Scenario(
        classifier(configure=every_third_step), loaders(), {"accumulate_grad_batches": 2}, listed=True
    ),
    "scheduler per step, rest of the epoch skipped": Scenario(
        classifier(configure=one_cycle, on_train_batch_start=skips_rest), loaders(), listed=True
    ),
    "no loss in some batches": Scenario(
        classifier(configure=every_second_step, training_step=leaves_out), train_only(), listed=True
    ),
    "groups and a frozen layer": Scenario(classifier(configure=groups), loaders()),
    "optimizer_step of the user's own": Scenario(classifier(optimizer_step=warm_up), loaders()),
    "dict from the step": Scenario(classifier(training_step=dict_step), loaders()),
    "rest of the epoch skipped": Scenario(classifier(on_train_batch_start=skips_rest), loaders()),
    # Lightning starts the reloaded training loader twice, which draws one more seed from the global generator than a
    # plain loop; with a generator of its own and without shuffling, the loader takes nothing from the global one.
    "loaders made anew": Scenario(
        classifier(),
        loaders(shuffle=False, generator=torch.Generator()),
        {"reload_dataloaders_every_n_epochs": 1},
    ),
}
