"""Tune a tiny transformer with Hugging Face's Trainer. Two lines make it freeze and thaw: the callback, and where to
resume from. It learns whether a sequence of letters holds more a's than b's; nothing is downloaded."""

from __future__ import annotations

import os
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from transformers import BertConfig, BertForSequenceClassification, PrinterCallback, Trainer, TrainingArguments
from transformers.utils import logging

import freezethaw as ft
from freezethaw.trainers.transformers import FreezeThaw

MAX_EPOCHS, EPOCHS = 10, 24
SPACE = ft.Space(
    learning_rate=ft.Float(1e-4, 3e-2, log=True),
    hidden=ft.Choice(16, 32, 64, ordered=True),
    dropout=ft.Float(0.0, 0.4),
    warmup_steps=ft.Int(0, 40),
)
logging.set_verbosity_error()
logging.disable_progress_bar()


class Letters(torch.utils.data.Dataset):
    """Sequences of a, b and other letters."""

    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.sequences = torch.randint(1, 6, (count, 16), generator=generator)
        self.labels = ((self.sequences == 1).sum(1) > (self.sequences == 2).sum(1)).long()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, place):
        return {"input_ids": self.sequences[place], "labels": self.labels[place]}


def train(run):
    torch.manual_seed(run.seed)
    config, drop = run.config, run.config["dropout"]
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=6,
            hidden_size=config["hidden"],
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=2 * config["hidden"],
            max_position_embeddings=16,
            hidden_dropout_prob=drop,
            attention_probs_dropout_prob=drop,
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=MAX_EPOCHS,
            learning_rate=config["learning_rate"],
            warmup_steps=config["warmup_steps"],
            per_device_train_batch_size=32,
            per_device_eval_batch_size=256,
            seed=run.seed,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(
            model, arguments, train_dataset=Letters(512, 0), eval_dataset=Letters(256, 1), callbacks=[FreezeThaw(run)]
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train(resume_from_checkpoint=run.checkpoint)


def main(epochs: int = EPOCHS) -> ft.Result:
    result = ft.tune(train, SPACE, max_epochs=MAX_EPOCHS, budget=epochs)
    best = result.best
    print(f"best: run {best.run}, epoch {best.epoch}, loss {best.loss:.4f}  {dict(best.config)}")
    return result


if __name__ == "__main__":
    main()
