"""Admission: which waiting jobs may take quota now, and why the others may not. Pure: a snapshot in, decisions out.

`snapshot` says what is known, `cohort` how quota is shared, `decide` gives one decision for each waiting job, `preempt` says
who gives quota back for it, `reservation` when the first of a queue can start at the latest, `forecast` when each may start,
and `reasons` are the codes and sentences of waiting.
"""

from .cohort import Node
from .decide import ASIDE, Admit, Decision, Wait, decide
from .forecast import Forecast, Unknown, forecast
from .reasons import Code, Reason, words
from .snapshot import Holding, Machine, Pending, Policy, QueueState, Range

__all__ = [
    "ASIDE", "Admit", "Code", "Decision", "Forecast", "Holding", "Machine", "Node", "Pending", "Policy", "QueueState", "Range",
    "Reason", "Unknown", "Wait", "decide", "forecast", "words",
]  # fmt: skip
