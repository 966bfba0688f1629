"""The pages of clusters: platform administrators see what a cluster lacks, and a cluster that does not answer says so."""

import pytest

from jobs import clusters

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
    clusters.adapters.clear()
    client.force_login(people.admin)
    assert client.get("/clusters").status_code == 200
    assert "NAMESPCE" in client.get("/clusters/odd?check=1").text
    clusters.adapters.clear()


def test_others_see_no_cluster(client, people):
    client.force_login(people.owner)
    for path in ("/clusters", "/api/v1/clusters", "/api/v1/clusters/local/check"):
        assert client.get(path).status_code == 403
    assert client.get("/clusters/local").status_code == 404, "no queue of theirs is there"
    client.force_login(people.admin)
    assert (
        client.get("/clusters/nowhere").status_code == client.get("/api/v1/clusters/nowhere/check").status_code == 404
    )
