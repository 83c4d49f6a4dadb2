"""A GAN learns a mixture of four Gaussians in each of the styles in which one can be written."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce
from torch.utils.data import DataLoader, TensorDataset

import fulmen as L
from tests.integration.toys import fit

CENTRES = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
SPREAD = 0.1


def mixture(batches: int) -> DataLoader[Any]:
    """Points around four centres, 64 to a batch."""
    generator = torch.Generator().manual_seed(5)
    count = 64 * batches
    which = torch.randint(4, (count,), generator=generator)
    points = CENTRES[which] + SPREAD * torch.randn(count, 2, generator=generator)
    return DataLoader(TensorDataset(points), batch_size=64)


class Gan(L.LightningModule):
    """What all styles share."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
        self.critic = nn.Sequential(
            nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1)
        )

    def noise(self, real: Tensor) -> Tensor:
        return torch.randn(len(real), 4).type_as(real)

    def generator_loss(self, fake: Tensor) -> Tensor:
        scores = self.critic(fake)
        return bce(scores, torch.ones_like(scores))

    def critic_loss(self, real: Tensor, fake: Tensor) -> Tensor:
        good, bad = self.critic(real), self.critic(fake.detach())
        return (bce(good, torch.ones_like(good)) + bce(bad, torch.zeros_like(bad))) / 2

    def configure_optimizers(self) -> Any:
        nets = {"generator": (self.generator, 1e-3), "critic": (self.critic, 3e-3)}
        return [
            {"optimizer": torch.optim.Adam(net.parameters(), lr=lr, betas=(0.0, 0.9)), "name": name}
            for name, (net, lr) in nets.items()
        ]


class Named(Gan):
    """An ordinary step with a loss for each optimizer."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        (real,) = batch
        fake = self.generator(self.noise(real))
        return {"loss": {"generator": self.generator_loss(fake), "critic": self.critic_loss(real, fake)}}


class Indexed(Gan):
    """A step of Lightning 1.x, with returned losses."""

    def training_step(self, batch: Any, batch_idx: int, optimizer_idx: int) -> Any:
        (real,) = batch
        fake = self.generator(self.noise(real))
        return self.critic_loss(real, fake) if optimizer_idx else self.generator_loss(fake)


class Article(Gan):
    """A step of Lightning 1.x that does backward and step itself although the mode is automatic."""

    def training_step(self, batch: Any, batch_idx: int, optimizer_idx: int) -> Any:
        (real,) = batch
        opt_g, opt_d = self.optimizers()
        fake = self.generator(self.noise(real))
        if optimizer_idx == 0:
            opt_g.zero_grad()
            loss = self.generator_loss(fake)
            self.manual_backward(loss)
            opt_g.step()
        if optimizer_idx == 1:
            opt_d.zero_grad()
            loss = self.critic_loss(real, fake)
            self.manual_backward(loss)
            opt_d.step()
        return {"loss": loss}


class Manual(Gan):
    """Manual optimization, as Lightning 2 wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        (real,) = batch
        opt_g, opt_d = self.optimizers()
        fake = self.generator(self.noise(real))
        with self.toggled_optimizer(opt_g):
            opt_g.zero_grad()
            self.manual_backward(self.generator_loss(fake))
            opt_g.step()
        with self.toggled_optimizer(opt_d):
            opt_d.zero_grad()
            self.manual_backward(self.critic_loss(real, fake))
            opt_d.step()


def shares(module: Gan) -> list[float]:
    """The part of 1000 generated points that lies within four spreads of each centre."""
    torch.manual_seed(2)
    with torch.no_grad():
        points = module.generator(torch.randn(1000, 4))
    near = torch.cdist(points, CENTRES) < 4 * SPREAD
    return [float(share) for share in near.float().mean(0)]


@pytest.mark.feature("M-08", "O-04", "O-15")
@pytest.mark.filterwarnings("ignore:.*taken as manual")
@pytest.mark.parametrize("kind", [Named, Indexed, Article, Manual])
def test_it_covers_all_modes(kind: Any) -> None:
    module = kind()
    assert min(shares(module)) < 0.05, "the untrained generator must not pass"
    L.seed_everything(4, verbose=False)
    trainer = fit(module, mixture(1000))
    assert trainer.global_step == 1000
    found = shares(module)
    assert min(found) > 0.1, found
    assert sum(found) > 0.75, found
