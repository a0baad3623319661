"""Tune a Lightning module on scikit-learn's digits. One line makes it freeze and thaw: the callback of the trainer."""

from __future__ import annotations

import logging
import warnings

import lightning
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import freezethaw as ft
from freezethaw.trainers.lightning import FreezeThaw

MAX_EPOCHS, EPOCHS = 15, 30
SPACE = ft.Space(
    learning_rate=ft.Float(1e-4, 0.3, log=True),
    hidden=ft.Int(8, 128, log=True),
    dropout=ft.Float(0.0, 0.6),
    batch_size=ft.Choice(32, 64, 128, ordered=True),
)
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", "The .* does not have many workers")

images, labels = load_digits(return_X_y=True)
parts = train_test_split(images.astype("float32") / 16.0, labels, test_size=0.3, random_state=0)
TRAIN_X, VALID_X, TRAIN_Y, VALID_Y = (torch.tensor(part) for part in parts)


class Network(lightning.LightningModule):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.layers = nn.Sequential(
            nn.Linear(64, config["hidden"]), nn.ReLU(), nn.Dropout(config["dropout"]), nn.Linear(config["hidden"], 10)
        )

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def validation_step(self, batch, _):
        scores = self.layers(batch[0])
        self.log("val_loss", nn.functional.cross_entropy(scores, batch[1]))
        self.log("accuracy", (scores.argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.config["learning_rate"], momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, MAX_EPOCHS)]


def train(run):
    lightning.seed_everything(run.seed, verbose=False)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=MAX_EPOCHS,
        callbacks=[FreezeThaw(run)],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
    )
    trainer.fit(
        Network(run.config),
        DataLoader(TensorDataset(TRAIN_X, TRAIN_Y), batch_size=run.config["batch_size"], shuffle=True),
        DataLoader(TensorDataset(VALID_X, VALID_Y), batch_size=1000),
    )


def main(epochs: int = EPOCHS) -> ft.Result:
    result = ft.tune(train, SPACE, max_epochs=MAX_EPOCHS, budget=epochs)
    best = result.best
    print(f"best: run {best.run}, epoch {best.epoch}, loss {best.loss:.4f}  {dict(best.config)}")
    return result


if __name__ == "__main__":
    main()
