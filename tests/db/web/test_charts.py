"""Charts are pure functions: points in, markup out."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.conf import settings
from hypothesis import example, given
from hypothesis import strategies as st

from common.text import format_bytes, format_number
from jobs.web import charts
from jobs.web.charts import (
    Chart,
    Line,
    axis,
    draw,
    missing_of,
    nice_step,
    points_of,
    tight_axis,
    time_step,
    x_words,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
numbers = st.floats(-1e300, 1e300) | st.floats(-1e9, 1e9).map(lambda value: float(f"{value:.6g}"))
finite = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(
    ("rough", "step"), [(0.3, 0.5), (1, 1), (1.2, 2), (2.1, 2.5), (3, 5), (7, 10), (230, 250), (0.0011, 0.002)]
)
def test_ticks_lie_on_round_numbers(rough, step):
    assert nice_step(rough) == pytest.approx(step)


@pytest.mark.parametrize(("rough", "step"), [(3, 5), (40, 60), (700, 900), (50_000, 86400), (200_000, 259_200)])
def test_time_steps_are_those_of_a_clock(rough, step):
    assert time_step(rough) == step


@given(st.lists(numbers, min_size=1, max_size=20))
def test_every_value_lies_inside_its_axis_and_ticks_rise(values):
    up = axis(values)
    assert all(-1e-6 <= up.place(value) <= 1 + 1e-6 for value in values)
    assert list(up.ticks) == sorted(set(up.ticks))
    assert 2 <= len(up.ticks) <= 6


@pytest.mark.parametrize("value", [3e-6, 0.001, -0.25, 0.0, 5.0])
def test_the_axis_of_a_small_constant_is_of_its_size(value):
    """The page reads values back from where they are drawn: 0.001 in a range from -1 to 2 came back as 0.00101."""
    found = axis([value, value])
    assert found.high - found.low <= (6 * abs(value) if 0 < abs(value) < 1 else 4)


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=20), st.booleans())
def test_the_axis_of_steps_ends_where_the_data_ends(values, is_time):
    across = tight_axis([float(value) for value in values], is_time=is_time)
    assert (across.low, across.place(max(values))) == (min(values), 1 if len(set(values)) > 1 else 0)
    assert len(across.ticks) <= 6


@given(
    st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), finite), min_size=1, max_size=9),
    st.booleans(),
    st.sampled_from([(format_number, "number", None), (format_bytes, "bytes", 0.0)]),
)
@example([(1, 2.8e18)], True, (format_number, "number", None))
@example([(1, 1e308), (2, -1e308)], True, (format_number, "number", None))
@example([(1, 0.0), (2, 5e-324)], True, (format_number, "number", None))
@example([(2**53, 0.5)], True, (format_number, "number", None))
@example([(1, 5e-324)], True, (format_number, "number", None))
@example([(1, 3e-320)], True, (format_bytes, "bytes", 0.0))
@example([(1, 1e-290)], True, (format_bytes, "bytes", 0.0))
def test_any_reported_values_can_be_drawn(values, by_step, unit):
    write, name, floor = unit
    series = [(START + timedelta(seconds=at), step, value) for at, (step, value) in enumerate(values)]
    points = points_of(series, start=START, by_step=by_step)
    kind = "step" if by_step else "time"
    svg = draw(Chart("flos", [Line("rank 0", points)], x_kind=kind, unit=write, unit_name=name, floor=floor))
    assert 1 <= svg.count('class="grid"') <= 6 and svg.count('class="across') <= 6
    assert "nan" not in svg and "inf" not in svg


def test_axes_of_amounts_start_at_zero():
    assert axis([0.9, 0.95], floor=0).low == 0


def test_memory_has_binary_ticks():
    ticks = axis([500 * 2**20, 700 * 2**20], floor=0, is_binary=True).ticks
    assert [format_bytes(tick) for tick in ticks] == ["0 B", "250 MiB", "500 MiB", "750 MiB"]


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [(1500, "step", "1,500"), (30, "time", "30 s"), (90, "time", "90 s"), (120, "time", "2 min"), (5400, "time", "1 h 30"),
     (7200, "time", "2 h"), (86400, "time", "1 d")],
)  # fmt: skip
def test_labels_of_the_axis_are_formatted(value, kind, words):
    assert x_words(value, kind) == words


def test_points_without_a_step_or_a_finite_value_are_left_out():
    series = [(START, 1, 0.5), (START, None, 0.4), (START, 2, float("nan"))]
    assert points_of(series, start=START, by_step=True) == [(1.0, 0.5)]
    later = [(START + timedelta(seconds=9), None, 0.4)]
    assert points_of(later, start=START, by_step=False) == [(9.0, 0.4)]


def test_values_that_are_not_finite_are_missing():
    series = [(START, 1, 0.5), (START, 2, float("nan")), (START, 3, None), (START, None, None)]
    assert missing_of(series, start=START, by_step=True) == [2.0, 3.0]


def loss(name="rank 0", *, missing=()):
    return Line(name, [(1, 2.0), (19, 0.1)], missing=missing)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([loss(missing=[20, 21])], "NaN since step 20"),
        ([loss(missing=[5, 6])], "0.1"),  # it is finite again
        ([loss(), loss("rank 3", missing=[20])], "0.1; NaN since step 20 on rank 3"),
        ([Line("rank 0", [], missing=[1, 2])], "NaN since step 1"),
    ],
)
def test_a_chart_says_since_when_a_series_is_not_finite(lines, words):
    chart = Chart("loss", lines)
    assert chart.current == words
    assert ("NaN" in draw(chart)) == bool([one for one in lines if one.missing])


def test_a_chart_marks_where_values_stop_being_finite():
    svg = draw(Chart("loss", [Line("rank 0", [(0, 1.0), (10, 1.0), (30, 1.0)], missing=[20, 21, 40, 50])]))
    assert re.findall(r'<line class="nan" x1="([0-9.]+)%"', svg) == ["40.00", "80.00"]
    assert 'data-x1="50' in svg, "its axis goes on while nothing is finite"


def test_a_chart_contains_the_data_for_hovering():
    svg = draw(Chart("loss", [Line("rank 0", [(0, 2.0), (10, 1.0)])]))
    assert 'data-x0="0' in svg
    assert 'data-y1="2.0"' in svg
    assert "loss: now 1, lowest 1, highest 2, 1 line" in svg


def test_a_single_point_is_visible():
    assert "<circle" in draw(Chart("loss", [Line("rank 0", [(3, 2.0)])]))


def test_a_chart_without_values_says_so():
    assert "no values yet" in draw(Chart("loss", [Line("rank 0", [])]))


def test_names_are_escaped():
    svg = draw(Chart('"><script>', [Line("<b>", [(0, 1.0)])]))
    assert "<script>" not in svg
    assert "<b>" not in svg


def test_there_is_a_colour_for_every_line():
    css = (settings.BASE_DIR / "static/job.css").read_text()
    assert all(f".c{index} " in css for index in range(charts.COLOURS))
