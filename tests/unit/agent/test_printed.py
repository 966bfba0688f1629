"""Metrics in the lines of unmodified programs: what is unmistakable is read, and nothing else."""

import time

import pytest

from agent.output import printed
from agent.output.printed import Point, point_of


@pytest.mark.parametrize(
    ("line", "step", "total", "values"),
    [
        ("iter 28: loss 4.2800, time 103.21ms, mfu 1.20%", 28, None, {"loss": 4.28, "mfu": 1.2}),  # nanoGPT
        ("step 250: train loss 4.2331, val loss 4.3012", 250, None, {"train_loss": 4.2331, "val_loss": 4.3012}),
        ("step 10/100 loss=2.3", 10, 100, {"loss": 2.3}),
        ("Epoch 3, step 20 of 500, loss: 0.5, lr: 3e-4", None, None, {"epoch": 3.0, "loss": 0.5, "lr": 3e-4}),
        ("[rank0] global_step: 7 | loss: 1.5e-02 | grad_norm: 0.9", 7, None, {"loss": 0.015, "grad_norm": 0.9}),
        ("Iteration 1200/5000 train_loss: 1.75 tokens/sec: 12000", 1200, 5000, {"train_loss": 1.75, "tokens_sec": 12000.0}),
        (" 30%|###       | 30/100 [00:10<00:23,  3.11it/s, loss=2.31]", 30, 100, {"loss": 2.31}),
        ("Epoch 0:  50%|##| 5/10 [00:01<00:01, 4.5it/s, v_num=3, train_loss=0.71]", None, None, {"epoch": 0.0, "train_loss": 0.71}),  # Lightning
        ("{'loss': 2.31, 'grad_norm': 1.5, 'learning_rate': 5e-05, 'epoch': 0.5}", None, None,
         {"loss": 2.31, "grad_norm": 1.5, "learning_rate": 5e-05, "epoch": 0.5}),  # Transformers' Trainer
        ("{'eval_loss': 1.9, 'eval_accuracy': 0.61}", None, None, {"eval_loss": 1.9, "eval_accuracy": 0.61}),
        ("accuracy=0.91", None, None, {"accuracy": 0.91}),  # Katib
        ("2026-11-27T10:00:00Z accuracy=0.91, loss=0.2", None, None, {"accuracy": 0.91, "loss": 0.2}),
        ("epoch 4: accuracy=0.95 loss=0.1", None, None, {"epoch": 4.0, "accuracy": 0.95, "loss": 0.1}),
        ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.287", None, None, {"epoch": 1.0, "loss": 2.287}),  # examples/mnist
        ("loss: 2.303494  [   64/60000]", None, None, {"loss": 2.303494}),  # torch's tutorial
        ("[0/5][50/1583]\tLoss_D: 0.5210\tLoss_G: 4.1\tD(x): 0.7", None, None, {"loss_d": 0.521, "loss_g": 4.1}),  # DCGAN
        ("Epoch: [0][  11/5005]\tTime  0.31 ( 1.0)\tLoss 6.9e+00 (7.0e+00)", None, None, {"loss": 6.9}),  # ImageNet
        ("\x1b[1m10/100\x1b[0m \x1b[32m━━\x1b[0m\x1b[37m━━━━━━\x1b[0m \x1b[1m1s\x1b[0m 5ms/step - accuracy: 0.1 - loss: 2.3",
         None, None, {"accuracy": 0.1, "loss": 2.3}),  # Keras
        ("Epoch 0: 50%|##| 5/10 [00:01<00:01, 4.5it/s, train_loss_step=0.7, train_loss_epoch=0.8]", None, None,
         {"epoch": 0.0, "train_loss_step": 0.7, "train_loss_epoch": 0.8}),
        ("{'loss': 2.5, 'learning_rate': 1.6666666666666667e-05}", None, None, {"loss": 2.5, "learning_rate": 1.6666666666666667e-05}),
        ("| epoch   1 |   200/  600 batches | lr 20.00 | ms/batch 64.65 | loss  7.22 | ppl  1370.83", None, None,
         {"epoch": 1.0, "lr": 20.0, "loss": 7.22, "ppl": 1370.83}),  # word_language_model
        ("| end of epoch   1 | time: 38.90s | valid loss  5.70 | valid ppl   299.01", None, None,
         {"epoch": 1.0, "valid_loss": 5.7, "valid_ppl": 299.01}),
        ("Epoch 5, loss: 0.123", None, None, {"epoch": 5.0, "loss": 0.123}),
        ("[RANK0] Epoch 1 | Iter 100 | Train Loss 3.1", 100, None, {"epoch": 1.0, "train_loss": 3.1}),
        ("Epoch [1/5], Step [100/600], Loss: 0.25", None, None, {"loss": 0.25}),
        ("step 1200/5000 epoch 0.24 loss 1.5", 1200, 5000, {"epoch": 0.24, "loss": 1.5}),
        ("step 31: loss nan", 31, None, {"loss": None}),
        ("step 31: loss: inf", 31, None, {"loss": None}),
    ],
)  # fmt: skip
def test_a_line_of_a_training_loop_is_read(line, step, total, values):
    assert point_of(line) == Point(step, total, values)


@pytest.mark.parametrize(
    "line",
    [
        "", "hello", "loss", "step 10", "steps: 100, lr: 0.001", "warmup steps: 100, loss: 0", "num steps: 5 loss: 1",
        "Downloading: 100%|##########| 30/30 [00:01<00:00, 20.1MB/s]", "Map: 10%|#| 100/1000 [00:01<00:10, 90 examples/s]",
        "ValueError: loss=3 is not allowed here", "self.loss = 3.0", "saved checkpoint_step=3, best loss file.pt", "the loss is 3.0",
        "my_loss_fn: 12", "lossless=1 and more", "File \"train.py\", line 31, in step", "{'labels': 3, 'name': 'x'}", "x" * 3000,
        "Test set: Average loss: 0.0512, Accuracy: 9833/10000 (98%)", "[1/2] Building", "3/10 ━━━━━━ done", "loss of [3/10] workers",
    ],
)  # fmt: skip
def test_other_lines_are_not(line):
    assert point_of(line) is None


def test_series_tell_where_they_come_from_and_the_total_becomes_progress():
    assert Point(3, 10, {"loss": 1.0}).numbers() == {"printed/loss": 1.0, "total_steps": 10.0}
    assert Point(None, None, {"loss": 1.0}).numbers() == {"printed/loss": 1.0}


def test_of_much_output_only_the_end_is_read():
    text = b"".join(b"step %d: loss 1.5\n" % number for number in range(100_000))
    found = printed.read(text)
    assert 100 < len(found) < 400 and found[-1].step == 99_999 and found[0].step == 100_000 - len(found)
    assert printed.read(b"\xff\xfe step 3: loss 2\n")[0].values == {"loss": 2.0}


@pytest.mark.parametrize(
    "line", ["1=" * 1000, "a=1," * 499, "{'" * 900, "loss=" + "1" * 1900, "step 1 loss " * 160, "|" * 1900]
)
def test_no_line_costs_more_than_its_length(line):
    began = time.thread_time()
    for _ in range(20):
        point_of(line)
    assert time.thread_time() - began < 2
