"""Callbacks within the real libraries: transformers, lightning, keras; tiny models on the CPU."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import foretrain
from foretrain import InvalidRequest, UnknownName, callbacks
from foretrain.measuring.watching.step_files import HookReader
from foretrain.measuring.watching.step_hook import CHANNEL_VARIABLE

HUGGING_FACE = """
import sys; sys.path.insert(0, {examples!r})
from train_hf_trainer import *
from foretrain.callbacks import HuggingFaceCallback
model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=64, n_embd=32, n_layer=1, n_head=2))
arguments = TrainingArguments(
    output_dir={folder!r}, max_steps=12, per_device_train_batch_size=2, save_strategy="no", report_to=[],
    use_cpu=True, disable_tqdm=True,
)
callback = HuggingFaceCallback(prediction=0.05, usd_per_hour=3.6, every_seconds=0.0, show=print)
Trainer(model=model, args=arguments, train_dataset=RandomTokens(), callbacks=[callback]).train()
assert callback.state_of_training.steps == 12
"""
LIGHTNING = """
from foretrain.callbacks import LightningCallback
import torch, lightning, warnings; warnings.simplefilter("ignore")
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__(); self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        return self.layer(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(24, 4)), batch_size=4)
callback = LightningCallback(prediction=0.05, usd_per_hour=3.6, every_seconds=0.0)
trainer = lightning.Trainer(
    max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    default_root_dir={folder!r}, callbacks=[callback],
)
trainer.fit(Model(), data)
assert callback.state_of_training.steps == 12
"""
KERAS = """
import os; os.environ["KERAS_BACKEND"] = "torch"
import keras, numpy as np
from foretrain.callbacks import KerasCallback
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
callback = KerasCallback(prediction=0.05, usd_per_hour=3.6, every_seconds=0.0)
model.fit(np.ones((24, 4)), np.ones((24, 1)), batch_size=4, epochs=2, verbose=0, callbacks=[callback])
assert callback.state_of_training.steps == 12
"""


@pytest.mark.parametrize("code", [HUGGING_FACE, LIGHTNING, KERAS], ids=["transformers", "lightning", "keras"])
def test_a_callback_reports_and_feeds_the_step_hook(code: str, tmp_path: Path) -> None:
    channel = tmp_path / "steps"
    channel.mkdir()
    examples = Path(__file__).parents[1] / "examples"
    script = code.format(folder=str(tmp_path), examples=str(examples))
    environment = {**os.environ, CHANNEL_VARIABLE: str(channel)}
    run = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    lines = [line for line in run.stdout.splitlines() if line.startswith("foretrain: ")]
    assert lines[0].startswith("foretrain: step 1/12")
    assert lines[-1].startswith("foretrain: step 12/12, measured ")
    assert "predicted 50.0 ms" in lines[-1] and " left" in lines[-1] and " spent" in lines[-1]
    (marks,) = HookReader(channel, 0.0).new_marks()
    assert len(marks.ends) == 12


def test_names_are_loaded_when_they_are_used() -> None:
    code = "import foretrain.callbacks, sys; print({'torch', 'transformers', 'keras'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"
    assert set(callbacks.__all__) <= set(dir(callbacks))
    assert not hasattr(callbacks, "JaxCallback")


def test_a_prediction_is_an_answer_a_number_or_keywords() -> None:
    keywords: dict[str, Any] = {"model": "mnist-cnn", "on": "t4", "batch": 64, "advice": False}
    answer = foretrain.predict(**keywords)
    assert isinstance(answer, foretrain.JobPrediction)
    seconds = answer.step.seconds.p50
    assert callbacks.predicted_seconds(answer) == callbacks.predicted_seconds(keywords) == seconds
    assert callbacks.predicted_seconds(2) == 2.0
    assert callbacks.predicted_seconds(None) is None


@pytest.mark.parametrize("prediction", [0.0, -1, float("nan"), "fast", True])
def test_other_predictions_are_refused(prediction: object) -> None:
    with pytest.raises(InvalidRequest, match="prediction"):
        callbacks.predicted_seconds(prediction)


def test_prices_are_given_or_those_of_an_offer() -> None:
    (offer,) = foretrain.search_offers(
        foretrain.OfferQuery(cloud=("aws",), gpu="t4", limit=1, all_regions=True)
    )
    priced = callbacks.hourly_price(None, f"{offer.provider}:{offer.instance}")
    assert priced is not None and priced > 0
    assert callbacks.hourly_price(2.5, None) == 2.5
    assert callbacks.hourly_price(None, None) is None
    with pytest.raises(InvalidRequest, match="two prices"):
        callbacks.hourly_price(2.5, "aws:g4dn.xlarge")
    with pytest.raises(InvalidRequest, match="at least 0"):
        callbacks.hourly_price(-1.0, None)
    with pytest.raises(UnknownName):
        callbacks.hourly_price(None, "aws:no-such-machine")
