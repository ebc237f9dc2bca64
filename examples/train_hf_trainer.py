"""Train a tiny GPT-2 with an unmodified Hugging Face Trainer, without access to the hub.

    foretrain measure -- python examples/train_hf_trainer.py

Nothing of foretrain is used here: step times come from the Trainer's progress bar.
"""

from __future__ import annotations

import argparse
import sys
import tempfile

import torch
from torch.utils.data import Dataset

try:
    import torchvision  # noqa: F401
except (ImportError, RuntimeError):  # a build whose operators do not match torch: transformers works without
    sys.modules["torchvision"] = None  # type: ignore[assignment]

from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class RandomTokens(Dataset[dict[str, torch.Tensor]]):
    """Sequences of random tokens."""

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(256, (64,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    """Train for the steps that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--no-bar", action="store_true")
    options = parser.parse_args()
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=64, n_embd=64, n_layer=2, n_head=2))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=options.steps,
            per_device_train_batch_size=16,
            logging_steps=20,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=options.no_bar,
        )
        Trainer(model=model, args=arguments, train_dataset=RandomTokens()).train()


if __name__ == "__main__":
    main()
