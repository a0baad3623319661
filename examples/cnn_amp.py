"""Tune a convolutional network with automatic mixed precision: the same file on a GPU and, smaller, on a CPU.

    python examples/cnn_amp.py --device cuda

prints the time per epoch, what the search adds to it, and whether a thawed run equals one that was never frozen.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before CUDA starts: matrix products that repeat exactly

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import freezethaw as ft
from freezethaw.runtime.check import check as check_training
from freezethaw.trainers import named
from freezethaw.trainers.pytorch import thawed

DEVICE = os.environ.get("CNN_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")
GPU = DEVICE.startswith("cuda")
MAX_EPOCHS, EPOCHS = 12, 60 if GPU else 24
SIZE, COUNT, CLASSES = (32, 20_000, 10) if GPU else (12, 600, 4)
SPACE = ft.Space(
    learning_rate=ft.Float(3e-3, 0.3, log=True),
    channels=ft.Int(8, 64, log=True) if GPU else ft.Int(4, 12, log=True),
    dropout=ft.Float(0.0, 0.5),
)
CONFIG = {"learning_rate": 0.05, "channels": 32 if GPU else 8, "dropout": 0.2}
torch.use_deterministic_algorithms(True)


def gratings(count, seed):
    """Stripes whose direction is the class, under much noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    angle, phase = labels * torch.pi / CLASSES, 6.3 * torch.rand(count, generator=generator)
    line = torch.linspace(-6, 6, SIZE)
    along = angle.cos()[:, None, None] * line + angle.sin()[:, None, None] * line[:, None]
    images = torch.sin(along + phase[:, None, None]) + 1.5 * torch.randn(count, SIZE, SIZE, generator=generator)
    return images[:, None], labels


def network(config):
    channels = config["channels"]
    return nn.Sequential(  # strides instead of pooling, whose gradients do not repeat exactly on a GPU
        nn.Conv2d(1, channels, 3, padding=1, stride=2), nn.BatchNorm2d(channels), nn.ReLU(),
        nn.Conv2d(channels, 2 * channels, 3, padding=1, stride=2), nn.BatchNorm2d(2 * channels), nn.ReLU(),
        nn.Flatten(), nn.Dropout(config["dropout"]), nn.Linear(2 * channels * (SIZE // 4) ** 2, CLASSES),
    )  # fmt: skip


def train(run):
    torch.manual_seed(run.seed)
    model = network(run.config).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=run.config["learning_rate"], momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, MAX_EPOCHS)
    scaler = torch.amp.GradScaler(DEVICE.partition(":")[0])
    loader = DataLoader(TensorDataset(*gratings(COUNT, seed=0)), batch_size=128, shuffle=True)
    valid_x, valid_y = (part.to(DEVICE) for part in gratings(COUNT // 4, seed=1))

    state = thawed(run, model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler, loader=loader)
    for _ in run.epochs():
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast(DEVICE.partition(":")[0], torch.float16 if GPU else torch.bfloat16):
                loss = nn.functional.cross_entropy(model(x.to(DEVICE)), y.to(DEVICE))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        scheduler.step()
        model.eval()
        with torch.no_grad():
            loss = nn.functional.cross_entropy(model(valid_x), valid_y).item()
        run.report(loss, save=state.save)


def main(epochs: int = EPOCHS) -> ft.Result:
    begun = time.perf_counter()
    result = ft.tune(train, SPACE, max_epochs=MAX_EPOCHS, budget=epochs)
    wall = time.perf_counter() - begun
    best = result.best
    print(f"best: run {best.run}, epoch {best.epoch}, loss {best.loss:.4f}  {dict(best.config)}")
    training = sum(sum(run.seconds) for run in result.runs)
    print(
        f"{DEVICE}: {1e3 * training / result.epochs:.0f} ms an epoch; decisions, saving and loading add "
        f"{1e3 * (wall - training) / result.epochs:.0f} ms ({result.epochs} epochs, {len(result.runs)} runs)"
    )
    return result


def check() -> None:
    report = check_training(named(f"{Path(__file__).resolve()}:train"), CONFIG, epochs=6)
    same = "equals" if report.thawed == report.uninterrupted else "differs from"
    print(f"the thawed curve {same} the uninterrupted one: {[round(loss, 6) for loss in report.thawed]}")
    print("check passed, saved files included" if report.passed else f"check failed: {report.findings}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default=DEVICE)
    wanted = parser.parse_args().device
    if wanted != DEVICE:  # sizes depend on it: begin again
        os.execve(sys.executable, [sys.executable, __file__], os.environ | {"CNN_DEVICE": wanted})
    main()
    check()
