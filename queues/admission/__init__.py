"""Admission: which waiting jobs may take quota now, and why the others may not. Pure: a snapshot in, decisions out.

`snapshot` says what is known, `cohort` how quota is shared, `fleet` what is free on nodes, `decide` gives one decision for each waiting job, `preempt` says
who gives quota back for it, `reservation` when the first of a queue can start at the latest, `forecast` when each may start,
and `reasons` are the codes and sentences of waiting.
"""

from .cohort import Node
from .decide import ASIDE, Admit, Decision, Wait, decide
from .fleet import FleetState, Gang, gang
from .forecast import Forecast, Unknown, forecast
from .reasons import Code, Reason, words
from .snapshot import Holding, Machine, Pending, Policy, QueueState, Range

__all__ = [
    "ASIDE", "Admit", "Code", "Decision", "FleetState", "Forecast", "Gang", "Holding", "Machine", "Node", "Pending", "Policy", "QueueState", "Range",
    "Reason", "Unknown", "Wait", "decide", "forecast", "gang", "words",
]  # fmt: skip
