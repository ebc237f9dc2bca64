"""Train a small network with Keras on the torch backend: `fit` prints the only progress there is.

foretrain measure -- python examples/train_keras.py
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import numpy as np


def main() -> None:
    """Train for the epochs that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--verbose", type=int, default=1, choices=(1, 2))
    options = parser.parse_args()
    generator = np.random.default_rng(0)
    images = generator.normal(size=(2048, 784)).astype("float32")
    labels = generator.integers(10, size=2048)
    layers = [keras.layers.Dense(256, activation="relu"), keras.layers.Dense(10)]
    model = keras.Sequential([keras.Input((784,)), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="sgd", loss=loss)
    model.fit(images, labels, batch_size=32, epochs=options.epochs, verbose=options.verbose)


if __name__ == "__main__":
    main()
