"""A plugin of mypy: what it kept of our modules is forgotten when any model changes.

A foreign key of one module adds an attribute to a model of another, and mypy notes no such edge between the two: with
an older cache a file that uses `job.checkpoints` fails in a checkout where it is right. What was found out about other
packages, most of a first run, stays.
"""

from functools import cache
from hashlib import sha256
from pathlib import Path

from mypy.plugin import Plugin, ReportConfigContext

ROOT = Path(__file__).resolve().parents[1]


class ForgetOldModels(Plugin):
    def report_config_data(self, ctx: ReportConfigContext) -> str | None:
        return None if "site-packages" in ctx.path else _models()


@cache
def _models() -> str:
    files = sorted([*ROOT.glob("*/models.py"), *ROOT.glob("*/models/*.py")])
    return sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def plugin(version: str) -> type[Plugin]:
    return ForgetOldModels
