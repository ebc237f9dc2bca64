"""The core's frozen dataclasses as JSON: one encoding for Python, the command line and REST."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from datetime import date
from enum import Enum
from typing import Any


def encode(value: Any) -> Any:
    """`value` with dataclasses as objects, enums as their values, dates in ISO form, and no NaN."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [encode(item) for item in value]
    if isinstance(value, Enum):
        return encode(value.value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def to_json(value: Any) -> str:
    """Indented JSON text of `value`."""
    return json.dumps(encode(value), indent=2, ensure_ascii=False, allow_nan=False)
