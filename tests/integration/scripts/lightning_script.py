"""A training script as users of Lightning write them; it knows nothing of Fulmen. Writes what it saw to a JSON file."""

import csv
import json
import logging
import sys
import warnings
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Data(L.LightningDataModule):
    def __init__(self, rows: int = 96, batch_size: int = 16):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage):
        generator = torch.Generator().manual_seed(7)
        x = torch.randn(self.hparams.rows, 6, generator=generator)
        y = (x.sum(1) > 0).long()
        self.train, self.val = random_split(TensorDataset(x, y), [0.75, 0.25], generator=generator)

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=self.hparams.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val, batch_size=self.hparams.batch_size)

    test_dataloader = val_dataloader
    predict_dataloader = val_dataloader


class Classifier(L.LightningModule):
    def __init__(self, width: int = 8, lr: float = 0.5, dropout: float = 0.2):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, 2))
        self.losses = []

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        self.log("train_loss", loss, on_step=True, on_epoch=True, prog_bar=True)
        self.losses.append(float(loss))
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.log_dict(
            {"val_loss": nn.functional.cross_entropy(logits, y), "val_acc": (logits.argmax(1) == y).float().mean()}
        )

    def test_step(self, batch, batch_idx):
        x, y = batch
        self.log("test_loss", nn.functional.cross_entropy(self(x), y))

    def predict_step(self, batch, batch_idx):
        return self(batch[0])

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.hparams.lr, momentum=0.9)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)}


def main(folder: Path) -> dict:
    L.seed_everything(11, workers=True)
    model, data = Classifier(), Data()
    checkpoint = ModelCheckpoint(monitor="val_loss", save_top_k=2, save_last=True, filename="{epoch}-{val_loss:.3f}")
    stopping = EarlyStopping("val_loss", patience=2, min_delta=0.01)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=12,
        callbacks=[checkpoint, stopping, LearningRateMonitor()],
        logger=CSVLogger(folder, name="runs", flush_logs_every_n_steps=2),
        log_every_n_steps=2,
        accumulate_grad_batches=2,
        gradient_clip_val=0.5,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, data)
    stopped = [stopping.stopped_epoch, stopping.wait_count, float(stopping.best_score)]
    tested = trainer.test(model, data, ckpt_path="best", verbose=False)
    predicted = torch.cat(trainer.predict(model, data, ckpt_path="last"))
    loaded = Classifier.load_from_checkpoint(checkpoint.best_model_path)
    saved = torch.load(checkpoint.best_model_path, weights_only=True)
    with open(Path(trainer.logger.log_dir) / "metrics.csv") as file:
        rows = list(csv.DictReader(file))
    return {
        "losses": model.losses,
        "tested": tested,
        "predicted": predicted.tolist(),
        "best": [Path(checkpoint.best_model_path).name, float(checkpoint.best_model_score)],
        "files": sorted(p.name for p in Path(checkpoint.dirpath).glob("*.ckpt")),
        "stopped": stopped,
        "progress": [trainer.current_epoch, trainer.global_step],
        "rows": rows,
        "weights": {name: value.tolist() for name, value in loaded.state_dict().items()},
        "hparams": [dict(loaded.hparams), saved["hyper_parameters"], saved["datamodule_hyper_parameters"]],
        "keys": sorted(set(saved) - {"fulmen"}),
        "callbacks": sorted(saved["callbacks"]),
        "version": [L.__version__, saved["pytorch-lightning_version"]],
        "where": [type(c).__module__ for c in (trainer, checkpoint, stopping, trainer.logger)],
        "argv": sys.argv[1:],
    }


if __name__ == "__main__":
    out = Path(sys.argv[1])
    (out / "result.json").write_text(json.dumps(main(out)))
