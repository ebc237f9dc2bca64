"""How the rows of PEFT's comparison are mapped to options of foretrain."""

from __future__ import annotations

from pathlib import Path

import pytest
from validation.peft_suite import read, trained_by_lora

HEADER = (
    "method,peft_type,rank,target_modules,use_dora,trainable_parameters,batch,max_seq_len,"
    "train_seconds_per_step,tokens_per_second,reserved_bytes_max"
)
ROWS = (
    "full--llama-3.2-3B,FULL,,,0,3212749824,4,768,0.5,2000,4e10",
    "lora--llama-3.2-3B,LORA,32,q_proj+v_proj,0,9175040,4,768,0.1,8000,2e10",
    "dora--llama-3.2-3B,LORA,32,q_proj+v_proj,1,9289728,4,768,0.1,8000,2e10",
    "lora-fa--llama-3.2-3B,LORA,32,q_proj+v_proj,0,3670016,4,768,0.1,8000,2e10",
    "ia3--llama-3.2-3B,IA3,,down_proj+k_proj+v_proj,0,286720,4,768,0.1,8000,2e10",
    "prompt_tuning--llama-3.2-3B,PROMPT_TUNING,,,0,614400,4,768,0.1,8000,2e10",
)


def test_parameters_of_lora_by_hand() -> None:
    # 28 blocks; rank 32 beside 3072 -> 3072 and 3072 -> 1024; DoRA has a magnitude for each output
    assert trained_by_lora(32, ("q_proj", "v_proj")) == 28 * 32 * (3072 + 3072 + 3072 + 1024) == 9_175_040
    assert trained_by_lora(32, ("q_proj", "v_proj"), dora=True) == 9_175_040 + 28 * (3072 + 1024)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text("\n".join((HEADER, *ROWS)) + "\n", encoding="utf-8")
    return path


def test_what_each_method_is_predicted_as(file: Path) -> None:
    methods, not_asked = read(file)
    assert {method.name: (method.lora, method.is_exact) for method in methods} == {
        "full": (None, True),
        "lora": ("r=32,targets=q_proj+v_proj", True),
        "dora": ("r=32,targets=q_proj+v_proj,dora", True),
        "lora-fa": ("r=13,targets=q_proj+v_proj", False),  # 3,670,016 / 286,720 = 12.8
        "ia3": ("r=1,targets=down_proj+k_proj+v_proj", False),
    }
    assert [name for name, _ in not_asked] == ["prompt_tuning--llama-3.2-3B"]
    assert methods[0].tokens == pytest.approx(1000)
