"""Plain PyTorch: all parts come back, whatever they are, and nothing in a checkpoint is executed."""

from __future__ import annotations

import random

import numpy as np
import pytest

from freezethaw.errors import TrainingError
from tests.trainers.bench import Bench
from tests.trainers.libraries import exploit, needs

needs("torch")
import torch  # noqa: E402
from torch.utils.data import DataLoader, RandomSampler, TensorDataset  # noqa: E402
from torch.utils.data.distributed import DistributedSampler  # noqa: E402

from freezethaw.trainers.pytorch import TorchState, load, thawed  # noqa: E402

X = torch.linspace(-1, 1, 24).reshape(-1, 1)
DATA = TensorDataset(X, X**2)


def train(run, make_loader, schedule="cosine", leave_out=()):
    """A network with dropout, Adam, a schedule, a scaler and draws from every generator that there is."""
    torch.manual_seed(run.seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(1, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(), torch.nn.Linear(4, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    scheduler = {
        "cosine": lambda: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6),
        "steps": lambda: torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 3], gamma=0.5),
        "cycle": lambda: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=7),
    }[schedule]()
    scaler, own = torch.amp.GradScaler("cpu", growth_interval=2), np.random.default_rng(run.seed)
    loader = make_loader()
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "scaler": scaler, "own": own}
    parts |= {"loader": loader, "nothing": None}
    state = thawed(run, **{name: part for name, part in parts.items() if name not in leave_out})
    for _ in run.epochs():
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        scheduler.step()
        noise = float(own.normal() + np.random.normal() + random.random() + torch.randn(()))  # noqa: NPY002
        run.report(float(loss.detach()) + 0.01 * noise + scaler.get_scale(), save=state.save)


def with_generator():
    return DataLoader(DATA, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(3))


def with_sampler():
    return DataLoader(DATA, batch_size=8, sampler=RandomSampler(DATA, generator=torch.Generator().manual_seed(4)))


def with_shared_generator():
    return DataLoader(DATA, batch_size=8, shuffle=True)


class Advancing(DistributedSampler):
    """Goes on to the next epoch by itself."""

    def __iter__(self):
        self.epoch += 1
        return super().__iter__()


def with_epochs():
    return DataLoader(DATA, batch_size=8, sampler=Advancing(DATA, num_replicas=2, rank=1))


def losses(folder, ends, *arguments, **options):
    folder.mkdir()
    bench = Bench(folder, seed=5)
    for end in ends:
        bench.train(lambda run: train(run, *arguments, **options), [end])
    return bench.reported


@pytest.mark.parametrize("make_loader", [with_generator, with_sampler, with_shared_generator, with_epochs])
@pytest.mark.parametrize("schedule", ["cosine", "steps", "cycle"])
def test_thawed_equals_uninterrupted(tmp_path, make_loader, schedule):
    whole = losses(tmp_path / "whole", [6], make_loader, schedule)
    assert losses(tmp_path / "parts", [1, 2, 4, 6], make_loader, schedule) == whole
    assert len(set(whole)) == 6


@pytest.mark.parametrize("part", ["model", "optimizer", "scheduler", "scaler", "own", "loader"])
def test_every_part_is_needed(tmp_path, part):
    """The comparison above would notice a part that is not restored."""
    whole = losses(tmp_path / "whole", [6], with_generator)
    assert losses(tmp_path / "parts", [3, 6], with_generator, leave_out=(part,))[3:] != whole[3:]


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64])
def test_generators_of_numpy(tmp_path, kind):
    generator, other = np.random.Generator(kind(1)), np.random.Generator(kind(2))
    TorchState(own=generator).save(tmp_path)
    TorchState(own=other).load(tmp_path)
    assert generator.normal(size=5).tolist() == other.normal(size=5).tolist()


def test_a_checkpoint_is_never_executed(tmp_path):
    model = torch.nn.Linear(1, 1)
    (tmp_path / "state.pt").write_bytes(exploit(tmp_path / "executed"))
    with pytest.raises(Exception, match=r"[Ww]eights.only"):
        TorchState(model=model).load(tmp_path)
    assert not (tmp_path / "executed").exists()


def test_state_that_could_not_be_loaded_is_refused_when_it_is_saved(tmp_path):
    class Odd(torch.nn.Module):
        def get_extra_state(self):
            return np.random.default_rng(0)

        def set_extra_state(self, state):
            pass

    with pytest.raises(TrainingError, match=r"a state_dict has .*numpy"):
        TorchState(model=Odd()).save(tmp_path)


def test_parts_that_have_no_state():
    with pytest.raises(TrainingError, match="epochs is a int, which has no state"):
        TorchState(epochs=3)


def test_another_training_than_the_one_that_was_saved(tmp_path):
    model = torch.nn.Linear(1, 1)
    TorchState(model=model).save(tmp_path)
    with pytest.raises(TrainingError, match="the checkpoint has model; this training has model, optimizer"):
        TorchState(model=model, optimizer=torch.optim.SGD(model.parameters())).load(tmp_path)


def test_a_part_of_a_checkpoint_is_loaded_alone(tmp_path):
    model, other = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    TorchState(model=model, optimizer=torch.optim.Adam(model.parameters())).save(tmp_path)
    before = torch.get_rng_state()
    load(tmp_path, model=other)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(TrainingError, match="the checkpoint has model, optimizer, but not network"):
        load(tmp_path, network=other)
