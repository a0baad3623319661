"""Hugging Face's Trainer: the callback evaluates, reports, saves and ends the training; the Trainer resumes."""

from __future__ import annotations

import os

import pytest

from freezethaw.errors import TrainingError
from tests.trainers.bench import Bench
from tests.trainers.libraries import exploit, needs

os.environ.setdefault("HF_HUB_OFFLINE", "1")
needs("transformers", "accelerate", "torch")
pytestmark = pytest.mark.filterwarnings("ignore")  # of the library itself

import torch  # noqa: E402
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments  # noqa: E402
from transformers.utils import logging  # noqa: E402

from freezethaw.trainers.transformers import FreezeThaw  # noqa: E402

logging.disable_progress_bar()
SEQUENCES = torch.randint(1, 5, (40, 6), generator=torch.Generator().manual_seed(0))
DATA = [{"input_ids": one, "labels": (one[0] > 2).long()} for one in SEQUENCES]


def train(run, folder, resume=True, loss="eval_loss", **arguments):
    torch.manual_seed(run.seed)
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    model = BertForSequenceClassification(BertConfig(vocab_size=5, max_position_embeddings=6, **shape))
    fixed = {"num_train_epochs": 8, "learning_rate": 0.01, "per_device_train_batch_size": 8, "seed": run.seed}
    quiet = {"save_strategy": "no", "report_to": "none", "disable_tqdm": True, "use_cpu": True}
    trainer = Trainer(
        model,
        TrainingArguments(str(folder / "output"), **fixed | quiet | arguments),
        train_dataset=DATA,
        eval_dataset=DATA,
        callbacks=[FreezeThaw(run, loss)],
    )
    trainer.train(resume_from_checkpoint=run.checkpoint if resume else None)


def sat(folder, ends, **options):
    folder.mkdir()
    bench = Bench(folder, seed=5)
    for end in ends:
        bench.train(lambda run: train(run, folder, **options), [end])
    return bench


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lr_scheduler_type": "cosine", "warmup_steps": 3, "gradient_accumulation_steps": 2, "bf16": True},
        {"eval_strategy": "steps", "eval_steps": 2, "logging_steps": 1, "lr_scheduler_type": "constant"},
    ],
)
def test_thawed_equals_uninterrupted(tmp_path, options):
    whole, parts = (sat(tmp_path / str(len(ends)), ends, **options) for ends in ([5], [1, 3, 5]))
    assert parts.reported == whole.reported
    assert len(set(whole.reported)) == 5
    for file in whole.saved.iterdir():
        assert file.read_bytes() == (parts.saved / file.name).read_bytes(), file.name


def test_to_the_end(tmp_path):
    assert len(sat(tmp_path / "one", [3, 8]).reported) == 8


def test_mistakes(tmp_path):
    bench = sat(tmp_path / "one", [2])
    with pytest.raises(TrainingError, match=r"expected epoch 3: use trainer\.train"):
        bench.train(lambda run: train(run, tmp_path, resume=False), [4])
    with pytest.raises(TrainingError, match=r"there is no 'eval_f1' in the metrics, only .*eval_loss"):
        sat(tmp_path / "two", [2], loss="eval_f1")
    with pytest.raises(TrainingError, match="reduce_lr_on_plateau"):
        sat(tmp_path / "three", [2], lr_scheduler_type="reduce_lr_on_plateau", eval_strategy="epoch")


@pytest.mark.parametrize("name", ["state.pt", "pytorch_model.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_a_checkpoint_is_never_executed(tmp_path, name):
    """Whatever of it is ours, and whatever the Trainer would look at."""
    bench = sat(tmp_path / "one", [1])
    if name == "pytorch_model.bin":
        (bench.saved / "model.safetensors").unlink()
    for file in {"optimizer.pt", "scheduler.pt"} if name in ("optimizer.pt", "scheduler.pt") else {name}:
        (bench.saved / file).write_bytes(exploit(tmp_path / "executed"))
    with pytest.raises(Exception, match=r"[Ww]eights.only"):
        bench.train(lambda run: train(run, tmp_path), [2])
    assert not (tmp_path / "executed").exists()
