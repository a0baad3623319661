"""Lightning: the callback reports whole epochs, saves, loads and ends the fit."""

from __future__ import annotations

import pytest

from freezethaw.errors import TrainingError
from tests.trainers.bench import Bench
from tests.trainers.libraries import exploit, needs

needs("lightning", "torch")
pytestmark = pytest.mark.filterwarnings("ignore")  # of the library itself

import lightning  # noqa: E402
import torch  # noqa: E402
from lightning.pytorch.callbacks import EarlyStopping  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from freezethaw.trainers.lightning import FreezeThaw  # noqa: E402

X = torch.linspace(-1, 1, 48).reshape(-1, 1)
DATA = TensorDataset(X, X**2)


class Network(lightning.LightningModule):
    def __init__(self, schedule):
        super().__init__()
        self.schedule = schedule
        self.layers = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))

    def training_step(self, batch, _):
        loss = ((self.layers(batch[0]) - batch[1]) ** 2).mean()
        self.log("loss", loss, on_epoch=True)
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", ((self.layers(batch[0]) - batch[1]) ** 2).mean())
        self.log("rate", self.optimizers().param_groups[0]["lr"])

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.05)
        if self.schedule == "epochs":
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.3)]
        if self.schedule == "steps":
            scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30)
            return [optimizer], [{"scheduler": scheduler, "interval": "step"}]
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.3, threshold=0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": "val_loss"}}


def train(run, schedule="epochs", precision="32-true", others=(), **options):
    lightning.seed_everything(run.seed, verbose=False)
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=9, precision=precision, callbacks=[FreezeThaw(run, **options), *others],
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, logger=False,
    )  # fmt: skip
    trainer.fit(Network(schedule), DataLoader(DATA, batch_size=16, shuffle=True), DataLoader(DATA, batch_size=48))


def sat(folder, ends, **options):
    folder.mkdir()
    bench = Bench(folder, seed=5)
    for end in ends:
        bench.train(lambda run: train(run, **options), [end])
    return bench


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("schedule", ["epochs", "steps", "plateau"])
def test_thawed_equals_uninterrupted(tmp_path, schedule, precision):
    options = {"schedule": schedule, "precision": precision}
    whole, parts = (sat(tmp_path / str(len(ends)), ends, **options) for ends in ([6], [1, 3, 6]))
    assert parts.reported == whole.reported
    assert parts.metrics == whole.metrics
    assert len(set(whole.reported)) == 6
    assert len({metrics["rate"] for metrics in whole.metrics}) > 1
    assert {"training_loss", "rate"} < set(whole.metrics[0])
    for file in whole.saved.iterdir():
        assert file.read_bytes() == (parts.saved / file.name).read_bytes()


def test_the_last_epoch_and_other_callbacks(tmp_path):
    folder = tmp_path / "whole"
    folder.mkdir()
    bench, stopping = Bench(folder), EarlyStopping("val_loss", patience=99)
    bench.train(lambda run: train(run, others=[stopping]), [4])
    waited = stopping.state_dict()
    again = EarlyStopping("val_loss", patience=99)
    bench.train(lambda run: train(run, others=[again]), [9])
    assert len(bench.reported) == 9
    assert again.best_score <= waited["best_score"]


def test_mistakes(tmp_path):
    with pytest.raises(TrainingError, match=r"'accuracy' was not logged, only .*val_loss.*; set loss="):
        sat(tmp_path / "one", [2], loss="accuracy")


def test_a_checkpoint_is_never_executed(tmp_path):
    bench = sat(tmp_path / "one", [1])
    (bench.saved / "state.pt").write_bytes(exploit(tmp_path / "executed"))
    with pytest.raises(Exception, match=r"[Ww]eights.only"):
        bench.train(train, [2])
    assert not (tmp_path / "executed").exists()
