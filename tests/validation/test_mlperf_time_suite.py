"""MLPerf's submissions are read once each, predicted by rules checkable by hand, and never fitted to."""

import csv
import gzip
import math
from dataclasses import replace
from pathlib import Path

import pytest
from validation.mlperf_cases import BERT, RESNET, Submission, network_named, read, reference_laws
from validation.mlperf_steps import (
    PLAIN,
    SUBMITTED,
    StepAndEvaluation,
    _strategy,
    evaluations,
    samples_to_target,
    seconds_to_train,
    time_to_train,
)
from validation.mlperf_time_suite import HERE, RATE, _table, _why
from validation.report import Case

from foretrain.convergence.batch_size import BatchSizeLaw, fit_batch_size_law
from foretrain.estimates import Z90, Quantiles

IMAGES = 1_281_167
ONE = Submission("v2.1", "a", "s", RESNET, "a100-sxm-80gb", 1, 8, 3264, (60.0, 80.0, 100.0), 35.0 * IMAGES)
ROW = {
    "ver": "v2.1",
    "submitter": "a",
    "system": "s",
    "bench": "resnet",
    "accel": "NVIDIA A100-SXM-80GB CTS",
    "nodes": "2",
    "acc_per_node": "4",
    "n_acc": "8",
    "gbs": "3264.0",
    "train_samples": "1281167.0",
    "status": "success",
    "minutes": "30.0",
    "last_epoch": "35.0",
    "throughput": "",
    "hostnet": "2x ConnectX-6 IB HDR 200Gb/Sec",
}


def written(folder: Path, rows: list[dict[str, str]], name: str) -> Path:
    (folder / "mlperf").mkdir(exist_ok=True)
    with gzip.open(folder / "mlperf" / f"{name}.csv.gz", "wt", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return folder


def test_runs_of_one_system_are_one_submission(tmp_path: Path) -> None:
    rows = [ROW | {"minutes": minutes} for minutes in ("30.0", "20.0", "40.0")]
    (one,) = read(written(tmp_path, rows, "runs_v2.1_v4.0")).submissions
    assert one.device_id == "a100-sxm-80gb"
    assert one.hardware == "a100-sxm-80gb:4x2"
    assert one.network == "infiniband-hdr:2"
    assert one.run_seconds == (1800.0, 1200.0, 2400.0)
    assert one.samples == 35 * IMAGES


def test_what_cannot_be_predicted_is_counted_with_its_reason(tmp_path: Path) -> None:
    rows = [
        ROW,
        ROW | {"submitter": "a-power"},
        ROW | {"submitter": "b", "accel": "Habana Gaudi2"},
        ROW | {"submitter": "c", "accel": ""},
        ROW | {"submitter": "d", "gbs": "3265.0"},
        ROW | {"submitter": "e", "status": "aborted"},
        ROW | {"submitter": "f", "bench": "ssd"},
    ]
    found = read(written(tmp_path, rows, "runs_v2.1_v4.0"))
    assert [one.submitter for one in found.submissions] == ["a"]
    assert {reason: len(names) for reason, names in found.skipped.items()} == {
        "the same runs published again": 1,
        "no such device known: Habana Gaudi2": 1,
        "trained on CPUs": 1,
        "a batch of 3265 does not share out over 8 devices": 1,
    }


def test_the_samples_of_bert_where_its_last_epoch_counts_passes(tmp_path: Path) -> None:
    bert = ROW | {"bench": "bert", "train_samples": "2749133.0"}
    rows = [bert | {"last_epoch": "1.0"}, bert | {"system": "t", "last_epoch": "2460237.0"}]
    found = read(written(tmp_path, rows, "runs_v2.1_v4.0")).submissions
    assert [one.samples for one in found] == [2749133, 2460237]


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("1x Ethernet 40Gb/Sec, 8x ConnectX-6 IB HDR 200Gb/Sec", "infiniband-hdr:8"),
        ("Storage: 2x ConnectX-7 IB NDR 400Gb/s, Compute: 8x ConnectX-7 IB NDR 400Gb/s", "infiniband-ndr:8"),
        (
            "Compute: 4 x Mellanox MT28908 Family [ConnectX-6] HDR 200 Gb/Sec + 1 x Ethernet",
            "infiniband-hdr:4",
        ),
        ("BF3 200Gbps for NS and 2xBF3 400Gbps for EW", "ethernet-400g:2"),
        ("Infiniband, Ethernet", None),
        ("", None),
    ],
)
def test_the_network_a_submission_describes(text: str, network: str | None) -> None:
    assert network_named(text) == network


def test_each_batch_counts_by_its_newest_round(tmp_path: Path) -> None:
    points = [("training_1.0.0", 448, 2_600_000), ("training_2.1.0", 448, 2_400_000)]
    points += [("training_2.1.0", 448, 2_500_000), ("training_1.0.0", 3072, 2_800_000)]
    rows = [
        {"round": when, "benchmark": name, "batch": str(batch), "epochs_or_samples_to_target": str(needed)}
        for name in (BERT, RESNET, "ssd")
        for when, batch, needed in points
    ]
    law = reference_laws(written(tmp_path, rows, "reference_convergence_points"))[BERT]
    assert list(law.batches) == [448, 3072]
    assert list(law.epochs) == [2_450_000, 2_800_000]


def test_mlperfs_score_leaves_out_the_fastest_and_the_slowest() -> None:
    assert ONE.seconds == 80.0
    assert replace(ONE, run_seconds=(60.0, 80.0)).seconds == 70.0


def test_the_open_division_is_distinguished() -> None:
    assert replace(ONE, submitter="MosaicML").is_open
    assert replace(ONE, system="16-nodes-SPR-pytorch-open").is_open
    assert not ONE.is_open


@pytest.mark.parametrize(("epochs", "count"), [(35, 9), (45, 12), (86, 22)])
def test_resnet_is_evaluated_every_four_epochs(epochs: int, count: int) -> None:
    assert evaluations(ONE, epochs * IMAGES) == count


@pytest.mark.parametrize(("batch", "every"), [(448, 150_000), (3072, 175_000), (16384, 325_000)])
def test_bert_is_evaluated_after_more_samples_at_larger_batches(batch: int, every: int) -> None:
    assert evaluations(replace(ONE, benchmark=BERT, batch=batch), 10 * every) == 10


def test_time_is_steps_and_evaluations() -> None:
    one = replace(ONE, batch=IMAGES)  # one step an epoch
    times = StepAndEvaluation(
        Quantiles(1.0, 2.0, 3.0), evaluation_seconds=5.0, flop_share=0.3, micro_batches=1
    )
    assert seconds_to_train(one, times, 8 * IMAGES) == 8 * 2 + 2 * 5


def test_step_and_epochs_err_independently() -> None:
    law = BatchSizeLaw((1000.0, 5000.0), (35.0, 35.0), 35.0, 0.0, spread=math.log(1.3) / Z90)
    times = StepAndEvaluation(Quantiles(1.0, 1.0, 1.4), 0.0, 0.3, 1)
    seconds = time_to_train(ONE, times, law)
    assert seconds.p50 == pytest.approx(35 * IMAGES / ONE.batch)
    assert seconds.p90 == pytest.approx(seconds.p50 * 1.5)  # 0.3 and 0.4 make 0.5
    assert seconds.p10 == pytest.approx(seconds.p50 / 1.3)


def test_samples_of_resnet_are_epochs_of_its_images_and_of_bert_the_reference_itself() -> None:
    law = fit_batch_size_law([1632, 3264, 6528], [35.0, 35.0, 35.0])
    assert samples_to_target(ONE, law).p50 == pytest.approx(35 * IMAGES)
    assert samples_to_target(replace(ONE, benchmark=BERT), law).p50 == pytest.approx(35)


def test_only_berts_update_is_sharded_and_only_plain_pytorch_overlaps() -> None:
    bert = replace(ONE, benchmark=BERT, nodes=2)
    assert _strategy(ONE, SUBMITTED) == "dp=8,overlap=no"
    assert _strategy(bert, SUBMITTED) == "dp=16,zero=1,shard=8,overlap=no"
    assert _strategy(bert, PLAIN) == "dp=16"


def test_a_method_is_judged_where_it_says_something_and_intervals_count_once() -> None:
    cases = [
        Case("x", "g", 100.0, {HERE: 110.0, RATE: 90.0}, Quantiles(90, 110, 120)),
        Case("y", "g", 100.0, {HERE: 130.0}, Quantiles(120, 130, 140)),
    ]
    table = _table(cases)
    assert table[HERE].cases == 2
    assert table[HERE].coverage == 0.5
    assert table[RATE].cases == 1
    assert table[RATE].coverage is None


def test_why_a_prediction_is_wrong() -> None:
    faster = replace(ONE, system="t", run_seconds=(60.0,))
    assert _why(ONE, [ONE, faster]) == "another system of these devices takes 1.0 min"
    assert _why(ONE, [ONE]) == "not known"
    assert _why(replace(ONE, submitter="tinycorp"), [ONE]).startswith("tinygrad")


def test_berts_head_sees_the_masked_tokens_alone() -> None:
    import torch
    from validation.mlperf_bert import masked_bert

    with torch.device("meta"):
        module, ids, _ = masked_bert(batch=2, seq_len=256)
        assert module(ids).shape == (2 * 38, 30522)  # 15 % of 256
        module, ids, _ = masked_bert(batch=1, seq_len=512)
        assert module(ids).shape == (76, 30522)  # at most 76
