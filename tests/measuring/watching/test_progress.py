"""Steps from what is printed: bars and lines as the tools print them."""

from collections.abc import Sequence

import numpy as np
import pytest

from foretrain.measuring.watching.progress import LineCutter, Observation, ProgressLog, parsers


def read(line: str) -> tuple[str, Observation] | None:
    """The first parser that reads a line, and what it reads."""
    for name, parser in parsers().items():
        observation = parser.read(line) if parser.hint in line else None
        if observation is not None:
            return name, observation
    return None


TQDM, KERAS, RICH = "tqdm progress bar", "Keras progress bar", "Lightning progress bar"
HF, LINES = "Hugging Face Trainer log", "printed lines"


@pytest.mark.parametrize(
    ("line", "source", "done", "total", "step_seconds"),
    [
        (" 45%|████▌     | 45/100 [00:01<00:01, 40.00it/s]", TQDM, 45, 100, 0.025),
        ("Epoch 0:  45%|████▌     | 45/100 [00:01<00:01, 40.00it/s, v_num=0]", TQDM, 45, 100, 0.025),
        ("  1%|          | 1/100 [00:02<03:31,  2.13s/it]", TQDM, 1, 100, 2.13),
        ("  0%|          | 0/100 [00:00<?, ?it/s]", TQDM, 0, 100, None),
        ("train: 100%|##########| 8/8 [01:02:03<00:00,  4.00batch/s, loss=0.1]", TQDM, 8, 8, 0.25),
        ("12it [00:03,  4.00it/s]", TQDM, 12, None, 0.25),
        ("12/100 ━━━━━━━━━━━━━━━━━━━━ 3s 25ms/step - accuracy: 0.8 - loss: 0.5031", KERAS, 12, 100, 0.025),
        ("100/100 - 3s - 25ms/step - loss: 0.3012", KERAS, 100, 100, 0.025),
        ("469/469 [==============================] - 2s 4ms/step - loss: 0.25", KERAS, 469, 469, 0.004),
        ("Epoch 0/4  ━━━━━━━━━╸━━━━━━ 45/100 0:00:01 • 0:00:02 40.00it/s v_num: 0.000", RICH, 45, 100, 0.025),
        ("step 120/1000 loss 0.3512 0.35 s/step", LINES, 120, 1000, 0.35),
        ("iter 10: loss 2.3012, time 120.45ms, mfu 1.20%", LINES, 10, None, 0.12045),
        (
            " iteration      100/  500000 | elapsed time per iteration (ms): 1203.4 |",
            LINES,
            100,
            500000,
            1.2034,
        ),
        ("Epoch: [0][ 10/391]\tTime  0.123 ( 0.456)\tData  0.001", LINES, 10, 391, 0.123),
        ("step: 50 | loss: 1.2 | dt: 95.20ms | tok/sec: 172000", LINES, 50, None, 0.0952),
        ("global_step=7 4.0 it/s", LINES, 7, None, 0.25),
        ("Step 3 of 9, loss 0.5", LINES, 3, 9, None),
    ],
)
def test_progress_as_tools_print_it(
    line: str, source: str, done: int, total: int | None, step_seconds: float | None
) -> None:
    answer = read(line)
    assert answer is not None
    assert (answer[0], answer[1].done, answer[1].total) == (source, done, total)
    assert answer[1].step_seconds == (None if step_seconds is None else pytest.approx(step_seconds))


def test_the_summary_of_the_hugging_face_trainer_is_a_mean() -> None:
    line = "{'train_runtime': '2.0', 'train_steps_per_second': '10', 'epoch': '1'}"
    for text in (line, line.replace("'2.0'", "2.0").replace("'10'", "10")):
        answer = read(text)
        assert answer is not None
        assert (answer[0], answer[1].done, answer[1].step_seconds) == (HF, 20, 0.1)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "loss 0.35",
        "Downloading: 100%|██████████| 570/570 [00:00<00:00, 1.20MB/s]",
        "Map: 100%|██████████| 1000/1000 [00:00<00:00, 5000.00 examples/s]",
        "\ufffd\ufffd\x00 [ 12 %|",
        "Restarting at 12:30",
    ],
)
def test_other_output_says_nothing_about_steps(line: str) -> None:
    assert read(line) is None


def log(states: Sequence[tuple[float, str]]) -> ProgressLog:
    progress = ProgressLog(tuple(parsers().values()))
    for at, line in states:
        progress.read(line, at)
    return progress


def bar(done: int, total: int = 10, title: str = "") -> str:
    return f"{title} {100 * done // total}%|##  | {done}/{total} [00:01<00:09, 1.00it/s]"


def test_steps_between_two_states_of_a_bar_share_the_time_between_them() -> None:
    progress = log([(1.0, bar(0)), (2.0, bar(1)), (5.0, bar(3)), (5.0, bar(3))])
    steps = progress.steps()
    assert steps is not None
    assert steps[0] == TQDM
    assert list(steps[1].seconds) == [1.0, 1.5, 1.5]
    assert list(steps[1].ends) == [2.0, 3.5, 5.0]
    assert progress.position() == (3, 10)


def test_a_second_epoch_starts_anew() -> None:
    states = [(0.0, bar(0)), (10.0, bar(10)), (50.0, bar(0)), (60.0, bar(10))]
    steps = log(states).steps()
    assert steps is not None
    assert list(steps[1].seconds) == [1.0] * 20


def test_bars_of_several_ranks_are_counted_once() -> None:
    states = [(0.0, bar(0)), (0.0, bar(0)), (2.0, bar(4)), (2.1, bar(3)), (2.2, bar(4)), (4.0, bar(8))]
    steps = log(states).steps()
    assert steps is not None
    assert list(steps[1].seconds) == [0.5] * 8
    prefixed = log([(1.0, "[rank0]: step 1"), (2.0, "[rank0]: step 2"), (9.0, "[rank1]: step 2")]).steps()
    assert prefixed is not None
    assert list(prefixed[1].seconds) == [1.0]


def test_the_bar_of_training_is_chosen_among_others() -> None:
    states = [
        (0.0, bar(0, 500, "Validation DataLoader 0:")),
        (5.0, bar(500, 500, "Validation DataLoader 0:")),
    ]
    states += [(6.0, bar(0, 2, "Epochs:")), (6.0, bar(0, 50, "Epoch 1:")), (11.0, bar(50, 50, "Epoch 1:"))]
    states += [(11.0, bar(1, 2, "Epochs:"))]
    steps = log(states).steps()
    assert steps is not None
    assert (len(steps[1].seconds), steps[1].seconds[0]) == (50, pytest.approx(0.1))


def test_a_bar_is_preferred_to_the_mean_of_the_run() -> None:
    mean = "{'train_runtime': 20.0, 'train_steps_per_second': 10.0}"
    assert (log([(0.0, bar(0)), (1.0, bar(2)), (2.0, mean)]).steps() or ("",))[0] == TQDM
    assert (log([(2.0, mean)]).steps() or ("",))[0] == HF


def test_printed_times_are_taken_where_they_are_of_the_latest_steps() -> None:
    steps = log(
        [(9.0, "iter 0: time 50ms"), (9.0, "iter 1: time 100ms"), (9.0, "iter 2: time 200ms")]
    ).steps()
    assert steps is not None
    assert list(steps[1].seconds) == [0.1, 0.2]


def test_an_epoch_that_prints_once_has_its_mean() -> None:
    steps = log([(3.0, "100/100 - 3s - 25ms/step - loss: 0.3"), (9.0, "100/100 - 3s - 20ms/step")]).steps()
    assert steps is not None
    assert np.array_equal(steps[1].seconds, [0.025] * 100 + [0.02] * 100)


def test_lines_end_where_a_bar_is_drawn_anew_and_colours_are_removed() -> None:
    cutter = LineCutter()
    assert list(cutter.lines(b"one\ntw")) == ["one"]
    assert cutter.rest() == "tw"
    assert list(cutter.lines(b"o\r\x1b[1m12/100\x1b[0m \x1b[32m\xe2\x94\x81\x1b[0m\n")) == ["two", "12/100 ━"]
    assert list(cutter.lines(b"a\x08\x08b\x1b[Ac\n")) == ["a", "b", "c"]


def test_binary_output_is_no_line_and_is_not_kept() -> None:
    cutter = LineCutter()
    assert list(cutter.lines(bytes(range(128, 256)) * 1000 + b"\n")) == []
    list(cutter.lines(bytes([200]) * 1_000_000))
    assert len(cutter.rest()) <= 2048


def test_the_state_of_a_bar_is_read_before_its_line_ends() -> None:
    progress = ProgressLog(tuple(parsers().values()))
    progress.read("step 12", 0.0, is_whole=False)  # perhaps the start of "step 120"
    progress.read(bar(0), 0.0, is_whole=False)
    progress.read(bar(2), 1.0, is_whole=False)
    steps = progress.steps()
    assert steps is not None
    assert list(steps[1].seconds) == [0.5, 0.5]
