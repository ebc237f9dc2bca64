"""All forms, by name."""

from __future__ import annotations

from collections.abc import Mapping

from foretrain.errors import UnknownName
from foretrain.learning.scaling.forms._base import Form
from foretrain.learning.scaling.forms.optimus import Optimus
from foretrain.learning.scaling.forms.physical import Physical
from foretrain.learning.scaling.forms.pollux import Pollux
from foretrain.learning.scaling.forms.ring import Ring
from foretrain.learning.scaling.forms.seed import Seed

FORMS: Mapping[str, Form] = {form.name: form for form in (Physical(), Ring(), Pollux(), Optimus(), Seed())}


def form(name: str) -> Form:
    """The form of that name."""
    if name not in FORMS:
        raise UnknownName("form", name, FORMS, f"Forms: {', '.join(FORMS)}")
    return FORMS[name]
