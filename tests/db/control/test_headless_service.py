"""`headless_service` from a submission or a queue's defaults to the plan of an attempt."""

import pytest

from common.errors import InvalidInput, InvalidSpec
from jobs import services
from jobs.control.store import plan_of
from jobs.submission import resolving

SENT = {"command": "torchrun train.py", "headless_service": 1}
pytestmark = pytest.mark.django_db


def test_a_job_or_its_queue_asks_for_it(lab, on_pods):
    assert plan_of(lab.submit(name="gpt-small", headless_service=1), 1).is_headless
    assert not plan_of(lab.submit(), 1).is_headless
    on_pods.defaults = resolving.queue_defaults(on_pods, {"headless_service": "1"})
    on_pods.save()
    assert plan_of(lab.submit(name="gpt-large"), 1).is_headless
    assert not plan_of(lab.submit(headless_service=0), 1).is_headless


def test_a_name_that_begins_with_a_digit_is_refused_with_it(on_pods):
    with pytest.raises(InvalidSpec) as caught:
        services.resolve(queue=on_pods, sent={**SENT, "name": "3d-unet"})
    (problem,) = caught.value.problems
    assert (problem.field, problem.value) == ("name", "3d-unet")
    assert problem.message == (
        "begins with a digit, and so would the Service 3d-unet-headless, which Kubernetes refuses; begin it with a letter, "
        "or set headless_service to 0"
    )
    assert services.resolve(queue=on_pods, sent={**SENT, "headless_service": 0, "name": "3d-unet"}).name == "3d-unet"


def test_a_name_of_muster_s_own_making_begins_with_a_letter(on_pods, people):
    sent = {"command": "torchrun 3d_unet.py"}
    names = [
        services.submit(user=people.owner, queue=on_pods, sent={**sent, "headless_service": number})[0].name
        for number in (1, 0)
    ]
    assert names[0].startswith("job-3d-unet-") and names[1].startswith("3d-unet-")


def test_where_there_are_no_pods_it_has_no_effect_and_the_plan_says_so(queue, people):
    notes = services.preview(user=people.owner, queue=queue, sent={**SENT, "name": "3d-unet"}).notes
    assert any("which have no pods: headless_service has no effect there" in note for note in notes)
    notes = services.preview(user=people.owner, queue=queue, sent={**SENT, "headless_service": 0}).notes
    assert not any("headless_service" in note for note in notes)


def test_another_value_is_refused(on_pods):
    with pytest.raises(InvalidInput) as caught:
        resolving.queue_defaults(on_pods, {"headless_service": 2})
    (problem,) = caught.value.problems
    assert problem.field == "defaults.headless_service" and "use 1 for such a Service" in problem.message
