"""What every learner must hold to: fit, predict, save, load, refuse what does not match."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretrain.errors import InvalidData, MissingData
from foretrain.prediction.operators.pricing import Floats


class LearnerSuite(ABC):
    """Inherit it in a test class, and say how your learner is fitted, asked, saved and read.

    `description` is the JSON file that states format and version; a learner with further files (safetensors)
    saves them beside it. Nothing may be pickled.
    """

    @abstractmethod
    def fit(self) -> Any:
        """The learner fitted to a small sample."""

    @abstractmethod
    def predict(self, model: Any) -> Floats:
        """Predictions of cases, some of them not in the sample."""

    @abstractmethod
    def save(self, model: Any, folder: Path) -> Path:
        """Write the model into a folder; returns what `load` reads."""

    @abstractmethod
    def load(self, path: Path) -> Any:
        """The model of a path."""

    def description(self, path: Path) -> Path:
        """The JSON file of a saved model."""
        return path

    def test_predictions_are_finite_and_above_zero(self) -> None:
        """Times, rates and shares are."""
        predicted = self.predict(self.fit())
        assert len(predicted)
        assert np.isfinite(predicted).all()
        assert (predicted > 0).all()

    def test_the_same_sample_gives_the_same_model(self) -> None:
        """Seeds are fixed."""
        assert self.predict(self.fit()).tolist() == self.predict(self.fit()).tolist()

    def test_a_saved_model_predicts_the_same(self, tmp_path: Path) -> None:
        """To the last bit: what was judged is what is used."""
        model = self.fit()
        read = self.load(self.save(model, tmp_path))
        assert self.predict(read).tolist() == self.predict(model).tolist()

    def test_a_saved_model_is_saved_again_unchanged(self, tmp_path: Path) -> None:
        """Nothing is lost on the way."""
        first, second = tmp_path / "first", tmp_path / "second"
        first.mkdir()
        second.mkdir()
        saved = self.save(self.fit(), first)
        again = self.save(self.load(saved), second)
        assert self.description(saved).read_bytes() == self.description(again).read_bytes()

    def test_no_file_holds_a_pickle(self, tmp_path: Path) -> None:
        """A model may come from anyone."""
        self.save(self.fit(), tmp_path)
        for file in tmp_path.rglob("*"):
            assert not file.is_file() or file.suffix in (".json", ".safetensors", ".txt"), file.name

    def test_a_model_that_is_not_there(self, tmp_path: Path) -> None:
        """Absent is not malformed."""
        with pytest.raises(MissingData):
            self.load(tmp_path / "none.json")

    def test_what_does_not_match_is_refused(self, tmp_path: Path) -> None:
        """Another format, another version, half a file, no JSON, a part missing."""
        path = self.save(self.fit(), tmp_path)
        file = self.description(path)
        text = file.read_text(encoding="utf-8")
        for content in self.mismatched(text):
            file.write_text(content, encoding="utf-8")
            with pytest.raises(InvalidData) as refused:
                self.load(path)
            assert file.name in str(refused.value) or path.name in str(refused.value)

    def mismatched(self, text: str) -> Iterator[str]:
        """Contents of the description that must be refused."""
        content = json.loads(text)
        yield text[: len(text) // 2]
        yield "model,device,seconds\n"
        yield "[]"
        yield json.dumps({**content, "format": "something else"})
        yield json.dumps({**content, "version": int(content["version"]) + 1})
        for name in content:
            yield json.dumps({key: value for key, value in content.items() if key != name})
