from muster.commands.planning import plan_lines
from muster.jobs.models_jobs import Plan

SENT = {"queue": "default", "roles": [], "distribution": {}, "asked": {}, "spec": {}, "fits_now": True}


def test_a_plan_shows_the_notes_about_the_command():
    plan = Plan.parse({**SENT, "notes": ["the command was given as one word"]})
    assert "Note: the command was given as one word" in plan_lines(plan)


def test_a_plan_of_an_older_server_without_notes_is_shown():
    assert not [line for line in plan_lines(Plan.parse(SENT)) if "Note" in line]
