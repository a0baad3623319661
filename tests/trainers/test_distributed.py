"""Two processes train a run together: they agree, continue where they were frozen, and never wait for dead ranks."""

from __future__ import annotations

import json
import os
import signal

import pytest

import freezethaw as ft
from freezethaw.errors import Diverged, TrainingError
from tests.trainers.bench import Bench
from tests.trainers.libraries import needs

needs("torch")
import torch  # noqa: E402

from freezethaw.trainers.distributed import everywhere  # noqa: E402
from freezethaw.trainers.pytorch import thawed  # noqa: E402


def train_rank(run):
    """Gradients of both ranks are averaged; each draws noise of its own."""
    rank = torch.distributed.get_rank()
    weight = torch.nn.Parameter(torch.tensor([4.0]))
    optimizer = torch.optim.SGD([weight], lr=run.config["rate"], momentum=0.5)
    own = torch.Generator().manual_seed(run.seed + rank)
    state = thawed(run, model=torch.nn.ParameterList([weight]), optimizer=optimizer, own=own)
    for _ in run.epochs():
        optimizer.zero_grad()
        (weight**2 + torch.randn(1, generator=own) * weight).sum().backward()
        torch.distributed.all_reduce(weight.grad)
        optimizer.step()
        run.report(float(weight.detach() ** 2) + rank * 1000.0, save=state.save, rank=rank)


def train(run):
    everywhere(run, train_rank, ranks=2)


def test_thawed_equals_uninterrupted(tmp_path):
    (tmp_path / "whole").mkdir()
    whole, parts = Bench(tmp_path / "whole"), Bench(tmp_path)
    whole.train(train, [4])
    parts.train(train, [1, 2])
    parts.train(train, [4])
    assert parts.reported == whole.reported
    assert len(set(whole.reported)) == 4
    assert max(whole.reported) < 1000.0  # the loss of rank 0
    assert whole.metrics[0] == {"rank": 0.0}
    assert json.loads((whole.saved / "ranks.json").read_text()) == 2
    assert sorted(file.name for file in (whole.saved / "rank-1").iterdir()) == ["state.pt"]  # the rest is the same


def test_tuned():
    result = ft.tune(train, ft.Space(rate=ft.Float(0.01, 0.3)), max_epochs=3, budget=2)
    assert result.epochs == 2


def fails(run):
    for _ in run.epochs():
        if torch.distributed.get_rank() == 1:
            raise ValueError("out of luck")
        torch.distributed.all_reduce(torch.zeros(1))  # waits for rank 1


def dies(run):
    for _ in run.epochs():
        if torch.distributed.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        torch.distributed.all_reduce(torch.zeros(1))


def diverges(run):
    for _ in run.epochs():
        if torch.distributed.get_rank() == 0:
            raise Diverged("no future")
        torch.distributed.barrier()


def leaves(run):
    for _ in run.epochs():
        if torch.distributed.get_rank() == 1:
            return
        run.report(1.0)


@pytest.mark.parametrize(
    ("training", "error", "message"),
    [
        (fails, TrainingError, "rank [01]: .*"),
        (dies, TrainingError, "rank 1 died, exit code -9|rank 0: "),
        (diverges, Diverged, "rank 0: Diverged: no future"),
        (leaves, TrainingError, "rank 1 ended while others train|rank 0"),
    ],
)
def test_no_rank_waits_for_ever(tmp_path, training, error, message):
    """Else this test would take longer than pytest allows."""
    with pytest.raises(error, match=message):
        Bench(tmp_path).train(lambda run: everywhere(run, training, ranks=2), [2])


def test_another_number_of_ranks(tmp_path):
    bench = Bench(tmp_path)
    bench.train(train, [1])
    with pytest.raises(TrainingError, match="was trained with 2 ranks and cannot continue with 3"):
        bench.train(lambda run: everywhere(run, train_rank, ranks=3), [2])
