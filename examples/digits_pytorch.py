"""Tune a small PyTorch network on scikit-learn's digits. Two lines make it freeze and thaw: `thawed` and `save=`."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import freezethaw as ft
from freezethaw.trainers.pytorch import thawed

MAX_EPOCHS, EPOCHS = 20, 40
SPACE = ft.Space(
    learning_rate=ft.Float(1e-4, 0.3, log=True),
    hidden=ft.Int(8, 128, log=True),
    dropout=ft.Float(0.0, 0.6),
    batch_size=ft.Choice(32, 64, 128, ordered=True),
)

images, labels = load_digits(return_X_y=True)
parts = train_test_split(images.astype("float32") / 16.0, labels, test_size=0.3, random_state=0)
TRAIN_X, VALID_X, TRAIN_Y, VALID_Y = (torch.tensor(part) for part in parts)


def train(run):
    torch.manual_seed(run.seed)
    config = run.config
    model = nn.Sequential(
        nn.Linear(64, config["hidden"]), nn.ReLU(), nn.Dropout(config["dropout"]), nn.Linear(config["hidden"], 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=config["learning_rate"], momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, MAX_EPOCHS)
    loader = DataLoader(TensorDataset(TRAIN_X, TRAIN_Y), batch_size=config["batch_size"], shuffle=True)
    measure = nn.CrossEntropyLoss()

    state = thawed(run, model=model, optimizer=optimizer, scheduler=scheduler, loader=loader)
    for _ in run.epochs():
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            measure(model(x), y).backward()
            optimizer.step()
        scheduler.step()
        model.eval()
        with torch.no_grad():
            scores = model(VALID_X)
        accuracy = (scores.argmax(1) == VALID_Y).double().mean()
        run.report(measure(scores, VALID_Y), save=state.save, accuracy=accuracy)


def main(epochs: int = EPOCHS) -> ft.Result:
    result = ft.tune(train, SPACE, max_epochs=MAX_EPOCHS, budget=epochs)
    best = result.best
    print(f"best: run {best.run}, epoch {best.epoch}, loss {best.loss:.4f}  {dict(best.config)}")
    return result


if __name__ == "__main__":
    main()
