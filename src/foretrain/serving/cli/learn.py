"""`foretrain learn ...`: models from your own runs."""

from __future__ import annotations

from foretrain.serving.cli.learn_resources import FAMILY

COMMAND = FAMILY
