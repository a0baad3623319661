"""Tune a network that two processes train together, with DistributedDataParallel. On GPUs: backend="nccl"."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import freezethaw as ft
from freezethaw.trainers.distributed import everywhere
from freezethaw.trainers.pytorch import thawed

MAX_EPOCHS, EPOCHS = 6, 8
SPACE = ft.Space(learning_rate=ft.Float(1e-3, 0.3, log=True), hidden=ft.Int(4, 64, log=True))


def rings(count, seed):
    """Points of two classes: near the origin, and around it."""
    points = torch.randn(count, 2, generator=torch.Generator().manual_seed(seed))
    return points, (points.norm(dim=1) > 1.2).long()


def train(run):
    everywhere(run, train_rank, ranks=2)


def train_rank(run):
    torch.manual_seed(run.seed)
    hidden = run.config["hidden"]
    model = nn.Sequential(nn.Linear(2, hidden), nn.ReLU(), nn.Dropout(0.1), nn.Linear(hidden, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=run.config["learning_rate"], momentum=0.9)
    data = TensorDataset(*rings(400, seed=0))
    sampler = DistributedSampler(data, seed=run.seed)
    loader = DataLoader(data, batch_size=20, sampler=sampler)
    valid_x, valid_y = rings(400, seed=1)

    state = thawed(run, model=model, optimizer=optimizer)
    shared = DistributedDataParallel(model)
    for epoch in run.epochs():
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(shared(x), y).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            loss = nn.functional.cross_entropy(model(valid_x), valid_y)
        run.report(loss, save=state.save)


def main(epochs: int = EPOCHS) -> ft.Result:
    result = ft.tune(train, SPACE, max_epochs=MAX_EPOCHS, budget=epochs)
    best = result.best
    print(f"best: run {best.run}, epoch {best.epoch}, loss {best.loss:.4f}  {dict(best.config)}")
    return result


if __name__ == "__main__":
    main()
