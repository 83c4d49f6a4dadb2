"""`fulmen ckpt`: what a file holds, where two differ, and clear errors; no code of a file is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import fulmen as L
from fulmen.cli import main
from fulmen.demos.boring_classes import BoringModel


class Model(BoringModel):
    def __init__(self, lr: float = 0.1, note: Any = None) -> None:
        super().__init__()
        self.save_hyperparameters()


def write(path: Path, model: Model, **kwargs: Any) -> Path:
    trainer = L.Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        **kwargs,
    )
    trainer.fit(model)
    trainer.save_checkpoint(path)
    return path


@pytest.fixture
def first(tmp_path: Path) -> Path:
    return write(tmp_path / "a.ckpt", Model(lr=0.125), max_steps=3)


def output(capsys: pytest.CaptureFixture[str], *arguments: Any, code: int = 0) -> str:
    assert main.main(["ckpt", *map(str, arguments)]) == code
    captured = capsys.readouterr()
    return captured.out if code == 0 else captured.err


@pytest.mark.feature("C-10")
def test_show(first: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "show", first)
    lines = {" ".join(line.split()) for line in text.splitlines()}
    size = f"{first.stat().st_size:,}"
    assert f"file {first} ({size} bytes)" in lines
    assert "progress epoch 1, step 3" in lines
    assert "weights 2 tensors, 66 elements, 264 bytes" in lines
    assert "lr 0.125" in lines and "max_steps 3" in lines and "precision 32-true" in lines
    assert f"class {__name__}.Model" in lines
    assert "[packages]" in lines and f"torch {torch.__version__}" in lines
    assert "layer.weight" not in text
    assert "layer.weight float32 [2, 32]" in {
        " ".join(line.split()) for line in output(capsys, "show", first, "--weights").splitlines()
    }


@pytest.mark.feature("C-10")
def test_show_as_json(first: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = json.loads(output(capsys, "show", first, "--json"))
    assert (facts["epoch"], facts["global_step"], facts["weights_only"]) == (1, 3, False)
    assert facts["manifest"]["trainer"]["given"]["max_steps"] == 3
    assert facts["hyper_parameters"] == {"lr": 0.125, "note": None}


def test_show_of_a_file_of_lightnings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(
        {"state_dict": {"w": torch.ones(2)}, "epoch": 1, "global_step": 4, "pytorch-lightning_version": "2.1.0"},
        tmp_path / "old.ckpt",
    )
    text = output(capsys, "show", tmp_path / "old.ckpt")
    assert "Lightning 2.1.0" in text and "weights only" in text and "manifest    none" in text


@pytest.mark.feature("C-10")
def test_diff(first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Model(lr=0.25)
    second = write(tmp_path / "b.ckpt", model, max_steps=4, accumulate_grad_batches=2)
    checkpoint = torch.load(first, weights_only=True)["state_dict"]
    found = json.loads(output(capsys, "diff", first, second, "--json"))
    assert found["values"]["hyper_parameters.lr"] == [0.125, 0.25]
    assert found["values"]["trainer.max_steps"] == [3, 4]
    assert found["values"]["trainer.accumulate_grad_batches"] == [1, 2]
    assert found["values"]["global_step"] == [3, 4]
    assert not any(name.startswith(("packages", "hardware", "seed", "module.")) for name in found["values"])
    gaps = {name: float((checkpoint[name] - value).abs().max()) for name, value in model.state_dict().items()}
    worst = max(gaps, key=lambda name: gaps[name])
    assert (found["weights"]["differ"], found["weights"]["largest_in"]) == (2, worst)
    assert found["weights"]["largest"] == pytest.approx(gaps[worst])
    text = output(capsys, "diff", first, second)
    assert "hyper_parameters.lr\n  - 0.125\n  + 0.25\n" in text
    assert f"weights: 2 of 2 tensors differ; the largest difference is {gaps[worst]:.3g}, in {worst}" in text


def test_diff_of_one_file_with_itself_is_empty(first: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(output(capsys, "diff", first, first, "--json"))
    assert found["values"] == {}
    assert output(capsys, "diff", first, first).endswith("weights: 0 of 2 tensors differ\n")


def test_diff_of_other_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"state_dict": {"a": torch.ones(2), "b": torch.ones(2), "n": torch.ones(1)}}, tmp_path / "a.ckpt")
    nan = torch.tensor([float("nan")])
    torch.save({"state_dict": {"b": torch.ones(3), "c": torch.ones(1), "n": nan}}, tmp_path / "b.ckpt")
    text = output(capsys, "diff", tmp_path / "a.ckpt", tmp_path / "b.ckpt")
    for line in (
        "- weights: a",
        "+ weights: c",
        "weights b: float32 [2] -> float32 [3]",
        "weights: 1 of 2 tensors differ; the largest difference is nan, in n",
    ):
        assert line in text.splitlines()


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "There is no file"), (b"no checkpoint", "x.ckpt"), ([1, 2], "holds a list, not a checkpoint")],
)
def test_wrong_files(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: Any, words: str) -> None:
    path = tmp_path / "x.ckpt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    assert words in output(capsys, "show", path, code=1)


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert "show|diff" in output(capsys, code=2)
    assert "invalid choice: 'shwo'" in output(capsys, "shwo", "a", code=2)
