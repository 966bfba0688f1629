"""Metrics that unmodified programs print: lines of training loops, progress bars, dictionaries. Pure.

Only what is unmistakable is read: a number with the name of a usual metric, beside a step, in a progress bar or in a
dictionary. It becomes series and progress, and nothing else: no verdict is made of it.
"""

from __future__ import annotations

import math
import re
from typing import Dict, List, NamedTuple, Optional

PREFIX = "printed/"  # distinguishes them from the series that the program reports itself
MOST_READ = 4096  # bytes of one piece of output, from its end: whoever prints much is not read as a whole
_NUMBER = r"[-+]?(?:\d{1,15}(?:\.\d{0,25})?|\.\d{1,25})(?:[eE][-+]?\d{1,3})?|[-+]?(?:nan|inf)\b"
_NAME = (
    r"(?:(?:train|training|val|valid|validation|eval|test)[ _/-]?)?(?:loss|ppl|perplexity|acc|accuracy|f1|bleu|wer|auc)(?:_(?:step|epoch|[dg]))?"
    r"|reward|return|lr|learning[ _]rate|grad[ _]norm|mfu|epoch|throughput|(?:tokens?|tok|samples?|steps?|it)[ _/](?:per[ _])?s(?:ec(?:ond)?)?"
)
_PAIR = re.compile(
    rf"(?<![\w/.-])[\"']?({_NAME})[\"']?(?:\s*[:=]\s*|\s+(?=[-+.\dnNiI]))[\"']?({_NUMBER})(?![\w.])", re.IGNORECASE
)
_STEP = re.compile(
    r"(?<![\w/.-])(?<!warmup )(?<!total )(?<!max )(?<!num )(?<!every )(?:iter(?:ation)?|(?:global[ _])?step)s?\s*[:=#]?\s*\[?\s*(\d{1,12})(?:\s*(?:/|of)\s*(\d{1,12}))?",
    re.IGNORECASE,
)
# tqdm: "  3%|▎         | 30/1000 [00:10<05:12,  3.11it/s, loss=2.3]"
_BAR = re.compile(r"\|\s*(\d{1,12})/(\d{1,12}) \[[\d:?]{4,12}<[\d:? ]{1,12}, [^\]]{0,200}\]")
# A place within an epoch, beside the usual names: "Train Epoch: 1 [640/60000 (1%)]  Loss: 2.3", "loss: 2.3  [  64/60000]",
# "[0/5][50/1583] Loss_D: 0.5", and Keras' "10/100 ━━━━━ 1s 5ms/step - loss: 2.3". It starts again with each epoch and is no step of the job.
_PLACE = re.compile(
    r"\[\s*\d{1,12}/\d{1,12}\s*(?:\(\s*\d{1,3}(?:\.\d{1,3})?%\))?\]|^\s*\d{1,12}/\d{1,12}\s+(?:[━╸─]{5,60}|\[[=>.]{5,60}\])\s.{0,40}s"
)
_BATCHES = re.compile(r"\b\d{1,12}\s*/\s*\d{1,12} (?:batches|batch|samples|examples)\b")
# Where a line names a whole epoch, its steps are those of the epoch: they begin again with the next one.
_EPOCH = re.compile(r"\bepoch\b[\s:=#\[]{0,4}\d{1,9}(?!\.?\d)", re.IGNORECASE)
_EPOCH_LINE = re.compile(
    r"^\W{0,5}(?:rank ?\d{1,6}\W{1,4})?(?:train(?:ing)?\s+|end of\s+)?epoch\W{0,4}\d", re.IGNORECASE
)
_COLOURS = re.compile(r"\x1b\[[\d;]{0,20}m|\x08")
_DICT = re.compile(r"^\s*\{['\"][^{}]{3,2000}\}\s*\Z")
# Katib's file format: "2026-11-27T10:00:00Z accuracy=0.91", and the same without a time.
_KATIB = re.compile(
    rf"^(?:\d{{4}}-\d\d-\d\dT\S{{8,30}}\s+)?(?:epoch \d{{1,9}}:\s*)?(?:[\w/.-]{{1,60}}=(?:{_NUMBER})[,;]?\s*){{1,20}}\Z",
    re.IGNORECASE,
)
_AGAIN = re.compile(r"[ /-]")
# Without one of these a line may be of a configuration: "steps: 100, lr: 0.001".
_RESULT = re.compile(r"loss|ppl|perplexity|acc|f1|bleu|wer|auc|reward|return")


class Point(NamedTuple):
    """`step` and `total` are None where the line has none."""

    step: Optional[int]
    total: Optional[int]
    values: Dict[str, Optional[float]]

    def numbers(self) -> Dict[str, Optional[float]]:
        """Return what is reported of it: series with the prefix, and the total as programs report it themselves."""
        found = {PREFIX + name: value for name, value in self.values.items()}
        if self.total is not None and self.step is not None:
            found["total_steps"] = float(self.total)
        return found


def read(text: bytes) -> List[Point]:
    """Return the points of whole lines. Of a long piece only its last lines are read."""
    part = text[-MOST_READ:]
    if len(part) < len(text):
        part = part.partition(b"\n")[2]
    lines = part.decode("utf-8", "replace").splitlines()
    return [point for point in map(point_of, lines) if point is not None]


def point_of(line: str) -> Optional[Point]:
    """Return what a line says of a training, None if it says nothing that is surely that."""
    if len(line) > 2000 or "=" not in line and ":" not in line and "oss" not in line:
        return None
    line = _COLOURS.sub("", line)
    bar = _BAR.search(line)
    steps = _STEP.search(line)
    values = {_named(name): _number(text) for name, text in _PAIR.findall(line)}
    if not any(_RESULT.search(name) for name in values):
        return None
    is_of_epoch = bool(_EPOCH.search(line))
    if bar:
        return Point(None, None, values) if is_of_epoch else Point(int(bar[1]), int(bar[2]), values)
    if steps and not (is_of_epoch and steps[2]):
        return Point(int(steps[1]), int(steps[2]) if steps[2] else None, values)
    is_sure = steps or any(one.search(line) for one in (_DICT, _KATIB, _PLACE, _BATCHES, _EPOCH_LINE))
    return Point(None, None, values) if is_sure else None


def _named(name: str) -> str:
    return _AGAIN.sub("_", name.lower())


def _number(text: str) -> Optional[float]:
    """Return the number; None if it is not finite, as in what programs report."""
    value = float(text)
    return value if math.isfinite(value) else None
