"""Train, test and use a digit classifier: the whole way on real data.

Run it with `make demo`, or `python examples/digits/train.py --help`.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from data import DigitsData
from model import DigitsNet

import fulmen as L
from fulmen.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from fulmen.loggers import CSVLogger, TensorBoardLogger


def main() -> None:
    """Train, test the best checkpoint, predict, load it again, and say where everything is."""
    parser = argparse.ArgumentParser(description="Train a small residual network on scikit-learn's digits.")
    parser.add_argument("--epochs", type=int, default=30, help="most epochs to train (default: 30)")
    parser.add_argument("--folder", default="runs/digits", help="where logs and checkpoints go")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    started = time.perf_counter()

    L.seed_everything(args.seed, workers=True)
    data, model = DigitsData(), DigitsNet()
    csv = CSVLogger(args.folder, name="")
    checkpoint = ModelCheckpoint(
        monitor="val_acc", mode="max", save_top_k=2, save_last=True, filename="{epoch}-{val_acc:.3f}"
    )
    trainer = L.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        logger=[csv, TensorBoardLogger(args.folder, name="", version=csv.version)],
        callbacks=[checkpoint, EarlyStopping("val_loss", patience=10), LearningRateMonitor("epoch")],
        log_every_n_steps=10,
        default_root_dir=args.folder,
    )
    trainer.fit(model, data)
    best = checkpoint.best_model_path

    tested = trainer.test(model, data, ckpt_path="best")[0]
    predicted = torch.cat(trainer.predict(model, data, ckpt_path="best") or [])
    labels = torch.cat([labels for _, labels in data.test_dataloader()])
    again = DigitsNet.load_from_checkpoint(best).eval()
    images = torch.cat([images for images, _ in data.test_dataloader()])
    with torch.no_grad():
        same = bool((again(images).argmax(dim=1) == predicted).all())

    folder = Path(csv.log_dir)
    print(
        f"""
Summary
  epochs trained       {trainer.current_epoch}, {trainer.global_step} steps
  validation accuracy  {float(checkpoint.best_model_score or 0):.2%} (best epoch)
  test accuracy        {tested["test_acc"]:.2%} (best checkpoint)
  predictions          {len(predicted)}, of which {(predicted == labels).sum()} are right
  loaded again         {"gives the same predictions" if same else "GIVES OTHER PREDICTIONS"}
  time                 {time.perf_counter() - started:.0f} s
  best checkpoint      {Path(best).relative_to(Path.cwd()) if Path(best).is_relative_to(Path.cwd()) else best}
  curves               {folder / "metrics.csv"}, or `tensorboard --logdir {args.folder}`
  run record           {folder / "run.jsonl"}"""
    )


if __name__ == "__main__":
    main()
