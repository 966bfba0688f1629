"""muster metrics: what the ranks reported, summarised or point by point."""

from __future__ import annotations

import csv
import sys

import click

from muster.commands.output import Output, reading
from muster.commands.session import job_argument, open_client
from muster.jobs.models import Point, Series
from muster.render import printable


@click.command()
@job_argument
@click.option("--name", "names", metavar="NAME", multiple=True, help="Only the series with this name; may be repeated.")
@click.option("--attempt", metavar="N", type=click.IntRange(min=1), help="Attempt to show (default: the newest).")
@click.option("--rank", metavar="R", type=int, help="Only this rank.")
@click.option("--csv", "is_csv", is_flag=True, help="Print every point as comma-separated values.")
@reading
def metrics(
    *, job: str, names: tuple[str, ...], attempt: int | None, rank: int | None, is_csv: bool, output: Output
) -> None:
    """Show the metrics that a job reports, such as loss and accuracy."""
    with open_client() as client:
        found = [one for one in client.metrics(job, names=names, attempt=attempt) if rank in (None, one.rank)]
    if is_csv:
        return _write_csv(found)
    output.items(
        found,
        ident=lambda one: one.name,
        headers=("SERIES", "RANK", "POINTS", "STEP", "LAST", "LEAST", "MOST"),
        row=_row,
        empty="No metrics: `muster.report(step=step, loss=loss)` in the training script sends some.",
    )


def _write_csv(found: list[Series]) -> None:
    """Write one line per point, which spreadsheets and pandas read without options."""
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(("series", "rank", "at_ms", "step", "value"))
    for one in found:
        out.writerows(
            (_cell(one.name), one.rank, point.at_ms, _text(point.step), _text(point.value, missing="NaN"))
            for point in one.points
        )


def _cell(name: str) -> str:
    """Return a name that no spreadsheet takes for a formula: a job chooses it, somebody else opens the file."""
    text = printable(name)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _row(one: Series) -> tuple[object, ...]:
    values = [point.value for point in one.points if point.value is not None]
    last, since = one.points[-1] if one.points else Point(0, None, None), one.nan_since
    newest = _figure(last.value) if since is None else f"NaN since {since.place}" if since.place else "NaN"
    most = _figure(max(values)) if values else ""
    least = _figure(min(values)) if values else ""
    return (one.name, one.rank, len(one.points), last.step, newest, least, most)


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _text(value: float | None, *, missing: str = "") -> str:
    return missing if value is None else repr(value)
