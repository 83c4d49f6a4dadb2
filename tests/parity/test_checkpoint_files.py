"""Which checkpoint files a real run leaves, their names, and what ModelCheckpoint knows of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from tests.parity.frameworks import LIGHTNING, RIGHT, STRICT, Framework, quiet
from tests.parity.scenarios import rows

SCORES = (0.9, 0.4, 0.7, 0.2, 0.8, 0.3)


@dataclass
class Case:
    """Arguments of ModelCheckpoint and of the Trainer; `right` if Fulmen's own policy leaves the same files."""

    checkpoint: dict[str, Any]
    trainer: dict[str, Any]
    right: bool = True


CASES = {
    "default": Case({}, {}),
    "top 2 of a monitor": Case({"monitor": "val_score", "save_top_k": 2, "filename": "{epoch}-{val_score:.2f}"}, {}),
    "largest, all kept, plain names": Case(
        {
            "monitor": "val_score",
            "mode": "max",
            "save_top_k": -1,
            "filename": "best-{epoch:02d}-{val_score:.3f}",
            "auto_insert_metric_name": False,
        },
        {},
    ),
    "every 3 steps": Case({"every_n_train_steps": 3, "save_top_k": -1, "filename": "{step}"}, {"limit_val_batches": 0}),
    "every 3 steps, best loss": Case(
        {"every_n_train_steps": 3, "monitor": "loss", "save_top_k": 2, "filename": "{step}-{loss:.4f}"}, {}
    ),
    "every second epoch": Case({"every_n_epochs": 2, "save_top_k": -1}, {}),
    "last": Case({"monitor": "val_score", "save_last": True, "filename": "{epoch}"}, {}, right=False),
    "last as link": Case(
        {"monitor": "val_score", "save_top_k": 3, "save_last": "link", "filename": "{epoch}"}, {}, right=False
    ),
    "validation twice an epoch": Case(
        {"monitor": "val_score", "save_top_k": 3, "filename": "{epoch}-{step}-{val_score:.2f}"},
        {"val_check_interval": 0.5, "max_epochs": 3},
    ),
    "same name again": Case({"monitor": "val_score", "save_top_k": 3, "filename": "model"}, {}),
    "slash in the metric": Case({"monitor": "val/score", "filename": "{epoch}-{val/score:.2f}"}, {}),
    "weights only": Case({"save_weights_only": True, "filename": "weights-{epoch}"}, {"max_epochs": 2}),
    "none": Case({"save_top_k": 0}, {}),
}


class Left:
    """Files of a run and the callback's own state."""

    def __init__(self, framework: Framework, case: Case, root: Path) -> None:
        L = framework.L

        class Module(L.LightningModule):  # type: ignore[name-defined, misc]  # the base class depends on the framework
            def __init__(self) -> None:
                super().__init__()
                self.net = torch.nn.Linear(8, 3)
                self.validations = -1

            def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
                loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
                self.log("loss", loss)
                return loss

            def on_validation_epoch_start(self) -> None:
                self.validations += not self.trainer.sanity_checking

            def validation_step(self, batch: Any, batch_idx: int) -> None:
                score = SCORES[max(self.validations, 0) % len(SCORES)]
                self.log_dict({"val_score": score, "val/score": score})

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), lr=0.1)

        torch.manual_seed(0)
        folder = root / "checkpoints"
        with quiet():
            checkpoint = framework.callbacks.ModelCheckpoint(dirpath=str(folder), **case.checkpoint)
            trainer = framework.trainer(
                root, callbacks=[checkpoint], **{"max_epochs": 6, "enable_checkpointing": True, **case.trainer}
            )
            trainer.fit(Module(), DataLoader(rows(16), batch_size=4), DataLoader(rows(4), batch_size=4))
        paths = sorted(folder.glob("*.ckpt"), key=lambda path: path.name)
        self.files = {path.name: self.content(path) for path in paths}
        name = lambda path: Path(path).name if path else ""  # noqa: E731  # a short name for a short function
        self.known = {
            "best_model_path": name(checkpoint.best_model_path),
            "best_model_score": number(checkpoint.best_model_score),
            "kth_best_model_path": name(checkpoint.kth_best_model_path),
            "kth_value": number(checkpoint.kth_value),
            "best_k_models": {name(path): number(score) for path, score in checkpoint.best_k_models.items()},
            "last_model_path": name(checkpoint.last_model_path),
            "current_score": number(checkpoint.current_score),
        }

    @staticmethod
    def content(path: Path) -> tuple[Any, ...]:
        """What tells one state from another, and which of Lightning's parts are in the file."""
        checkpoint = torch.load(path, weights_only=False)
        parts = sorted(set(checkpoint) - {"fulmen", "pytorch-lightning_version", "hparams_name", "hyper_parameters"})
        return checkpoint["epoch"], checkpoint["global_step"], parts, float(checkpoint["state_dict"]["net.bias"].sum())


def number(value: Any) -> float | None:
    return None if value is None else float(value)


Lefts = Callable[[str, str], Left]


@pytest.fixture(scope="module")
def lefts(tmp_path_factory: pytest.TempPathFactory) -> Lefts:
    @cache
    def left(framework: str, case: str) -> Left:
        return Left(Framework(framework), CASES[case], tmp_path_factory.mktemp("left"))

    return left


@pytest.mark.feature("C-01")
@pytest.mark.parametrize("case", CASES)
def test_files_and_paths_are_lightnings(case: str, lefts: Lefts) -> None:
    peer, ours = lefts(LIGHTNING, case), lefts(STRICT, case)
    assert ours.files == peer.files
    assert ours.known == peer.known


@pytest.mark.feature("C-01")
@pytest.mark.parametrize("case", [name for name, case in CASES.items() if case.right])
def test_right_leaves_the_same_where_nothing_is_listed(case: str, lefts: Lefts) -> None:
    peer, ours = lefts(LIGHTNING, case), lefts(RIGHT, case)
    assert ours.files == peer.files
    assert ours.known == peer.known


@pytest.mark.feature("C-01")
@pytest.mark.parametrize("case", ["last", "last as link"])
def test_last_is_the_newest_state(case: str, lefts: Lefts) -> None:
    """Lightning writes `last.ckpt` only together with a best one; here it is what the run ended with."""
    peer, ours = lefts(LIGHTNING, case), lefts(RIGHT, case)
    assert peer.files["last.ckpt"][0] == 3 if case == "last" else True
    assert ours.files["last.ckpt"][:2] == (5, 24)
    assert {name for name in ours.files if name != "last.ckpt"} >= {"epoch=3.ckpt"}
