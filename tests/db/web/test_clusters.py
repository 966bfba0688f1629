"""The pages of clusters: platform administrators see what a cluster lacks, and a cluster that does not answer says so."""

from datetime import timedelta

import pytest
from django.utils import timezone

from jobs import clusters
from jobs.clusters import ClusterEvent
from jobs.control import cluster_checks
from jobs.models import ClusterCheck

pytestmark = pytest.mark.django_db


def test_the_list_names_clusters_and_their_queues(client, people, on_pods):
    client.force_login(people.admin)
    page = client.get("/clusters").text
    assert 'href="/clusters/local"' in page and 'href="/queues/default"' in page and "pods" in page


def test_a_page_loads_its_check_by_itself_and_without_script_by_a_link(client, people, on_pods):
    clusters.get("local").lacks = "the account may not create pods"
    client.force_login(people.admin)
    page = client.get("/clusters/local").text
    assert 'hx-trigger="load"' in page and "may not create pods" not in page
    assert "The account may not create pods" in client.get("/clusters/local?check=1").text
    part = client.get("/clusters/local", headers={"HX-Request": "true", "HX-Target": "section#check"}).text
    assert "<html" not in part and "The account may not create pods" in part
    told = client.get("/api/v1/clusters/local/check").json()["results"]
    assert [(one["state"], one["words"]) for one in told] == [("wrong", "the account may not create pods")]


def test_a_cluster_that_does_not_answer_says_so(client, people, on_pods):
    clusters.get("local").is_reachable = False
    client.force_login(people.admin)
    (one,) = client.get("/api/v1/clusters/local/check").json()["results"]
    assert (one["about"], one["state"], one["who"]) == ("server", "wrong", "an administrator of Muster")


def test_one_with_settings_that_cannot_be_read_does_not_break_the_page(client, people, settings):
    settings.CLUSTERS = {"odd": {"BACKEND": "jobs.clusters.kubernetes.KubernetesCluster", "OPTIONS": {"NAMESPCE": "x"}}}
    client.force_login(people.admin)
    assert client.get("/clusters").status_code == 200
    assert "NAMESPCE" in client.get("/clusters/odd?check=1").text


def test_others_see_no_cluster(client, people):
    client.force_login(people.owner)
    assert client.get("/clusters/local").status_code == 404, "no queue of theirs is there"
    pages = ("/clusters", "/clusters/local/pods")
    for path in (*pages, "/api/v1/clusters", "/api/v1/clusters/local/check", "/api/v1/clusters/local/pod-checks/1"):
        assert client.get(path).status_code == 403
    for path in ("/clusters/local/pods", "/api/v1/clusters/local/pod-checks"):
        assert client.post(path).status_code == 403
    client.force_login(people.admin)
    assert (
        client.get("/clusters/nowhere").status_code == client.get("/api/v1/clusters/nowhere/check").status_code == 404
    )


def drive() -> None:
    for turn in range(1, 5):
        cluster_checks.go_on(now=timezone.now() + turn * timedelta(seconds=3))


def test_a_check_by_pods_begins_on_the_page_which_shows_it_while_it_runs_and_then_what_was_found(
    client, people, on_pods
):
    client.force_login(people.admin)
    page = client.get("/clusters/local").text
    assert 'hx-get="/clusters/local/pods" hx-trigger="load"' in page, "it loads by itself, and without script by a link"
    assert client.get("/clusters/local/pods").text.count("<option") == 2
    answer = client.post("/clusters/local/pods", {"image": "team/<b>:1"})
    assert answer.status_code == 422 and "is not the name of an image" in answer.text and "<b>:1" not in answer.text
    assert client.post("/clusters/local/pods", {"queue": "nowhere"}).status_code == 422
    assert client.post("/clusters/local/pods", {"image": "team/train:1"}).headers["Location"] == "/clusters/local/pods"
    part = {"HX-Request": "true", "HX-Target": "section#pod-checks"}
    running = client.get("/clusters/local/pods", headers=part).text
    assert 'hx-trigger="every 2s"' in running and "<html" not in running and "<form" not in running
    drive()
    done = client.get("/clusters/local/pods", headers=part).text
    assert "every 2s" not in done and "A pod of image team/train:1 starts" in done and "<form" in done
    assert 'hx-trigger="every 2s"' in client.post("/clusters/local/pods", {"queue": "default"}, headers=part).text
    drive()
    assert "<details" in client.get("/clusters/local/pods").text, "earlier ones are folded"


def test_a_cluster_without_pods_has_no_such_section(client, people, queue):
    client.force_login(people.admin)
    assert "/clusters/local/pods" not in client.get("/clusters/local").text
    answer = client.post("/clusters/local/pods")
    assert answer.status_code == 422 and "processes of one machine" in answer.text


def test_a_check_by_pods_is_begun_and_read_over_the_api(client, people, on_pods):
    client.force_login(people.admin)
    path = "/api/v1/clusters/local/pod-checks"
    made = client.post(path, {"queue": "default"}, content_type="application/json")
    assert made.status_code == 201 and made.json()["is_running"] and made.json()["queue"] == "default"
    again = client.post(path, {"queue": "default"}, content_type="application/json")
    assert (again.status_code, again.json()["id"]) == (200, made.json()["id"])
    drive()
    one = client.get(f"{path}/{made.json()['id']}").json()
    assert not one["is_running"] and one["asked_by"] == people.admin.username
    assert [(found["about"], found["state"]) for found in one["findings"]] == [("pods", "ok")]
    for body in ({"queue": "nowhere"}, {"imag": "x"}, {"image": "Not An Image"}, {"image": "a:1", "queue": "default"}):
        assert client.post(path, body, content_type="application/json").status_code == 422, body
    assert client.get(f"{path}/0").status_code == client.get("/api/v1/clusters/nowhere/pod-checks/1").status_code == 404
    assert client.get(f"/api/v1/clusters/other/pod-checks/{one['id']}").status_code == 404
    assert ClusterCheck.objects.count() == 1


def test_the_events_of_a_job_s_cluster_are_shown_raw(client, people, lab, on_pods):
    job, now = lab.running(), timezone.now()
    client.force_login(people.viewer)
    path = f"/api/v1/jobs/{job.pk}/cluster-events"
    assert "keeps them for an hour" in client.get(path).json()["message"]
    clusters.get("local").told[job.run] = (
        ClusterEvent(now, "Warning", "FailedMount", f"Pod/{job.run}-1-worker-0", "<b>no such claim</b>", 7),
    )
    (one,) = client.get(path).json()["events"]
    assert (one["reason"], one["count"], one["message"]) == ("FailedMount", 7, "<b>no such claim</b>")
    page = client.get(f"/jobs/{job.pk}/cluster-events").text
    assert "&lt;b&gt;no such claim" in page and "7 times" in page
    assert f"/jobs/{job.pk}/cluster-events" in client.get(f"/jobs/{job.pk}").text
    clusters.get("local").is_reachable = False
    assert "does not say: the cluster does not answer" in client.get(path).json()["message"]
    assert client.get(f"{path}?attempt=9").status_code == 404
    client.force_login(people.stranger)
    assert client.get(path).status_code == client.get(f"/jobs/{job.pk}/cluster-events").status_code == 404


def test_where_there_are_no_events_it_is_said_why(client, people, lab, settings):
    client.force_login(people.owner)
    local = lab.running()
    assert "processes of one machine" in client.get(f"/api/v1/jobs/{local.pk}/cluster-events").json()["message"]
    waiting = lab.submit()
    assert "not been started" in client.get(f"/jobs/{waiting.pk}/cluster-events").text
    settings.CLUSTERS = {}
    assert "no longer among" in client.get(f"/jobs/{local.pk}/cluster-events").text
