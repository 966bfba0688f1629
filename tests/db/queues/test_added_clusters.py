"""Clusters in the database beside those of MUSTER_CLUSTERS: who may change them, and how processes learn of it."""

import threading

import pytest
from cryptography.fernet import Fernet

from accounts.models import AuditEntry
from common.errors import Conflict, InvalidInput, NotAllowed, Unreachable
from jobs import clusters
from jobs.control import watcher
from jobs.submission import cluster_entries, inspecting
from queues import clusters as entries
from queues.models import AddedCluster, AllowedObject, Queue
from tests.support.patience import until

OPTIONS = {"NAMESPACE": "jobs", "IMAGE": "training:1", "CONTROL_URL": "https://muster.example"}
AWAY = {
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {"token": "secret-token"}}],
    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x",
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_adapters():
    yield
    clusters.adapters.clear()
    entries.forget()


def added(name: str = "h100", **values) -> AddedCluster:
    """A row as `add` leaves it. That the cluster is asked first is tested with one (tests/cluster/api/test_added.py)."""
    values = {"options": OPTIONS, "server": "https://127.0.0.1:1", "sealed": entries.seal(AWAY), **values}
    row = AddedCluster.objects.create(name=name, **values)
    entries.forget()
    return row


def test_an_added_one_is_known_beside_the_others(people):
    added()
    assert entries.names() == ["local", "h100"]
    assert clusters.backend("h100").MAKES_PODS and clusters.namespace_of("h100") == "jobs"
    assert inspecting.described("h100")["options"] == OPTIONS
    assert [one.about for one in inspecting.inspect("h100") if one.state == "wrong"] == ["server"]


def test_another_process_learns_of_a_change_without_being_told(people, monkeypatch):
    row = added()
    before = clusters.get("h100")
    assert clusters.get("h100") is before
    AddedCluster.objects.filter(pk=row.pk).update(options={**OPTIONS, "NAMESPACE": "other"}, version=2)
    monkeypatch.setattr(entries, "FRESH_SECONDS", 0.0)
    assert clusters.get("h100") is not before and clusters.namespace_of("h100") == "other"
    AddedCluster.objects.create(name="new", options=OPTIONS)
    monkeypatch.setattr(entries, "FRESH_SECONDS", 3600.0)
    assert clusters.is_known("new"), "an unknown name is looked up at once"
    AddedCluster.objects.filter(pk=row.pk).delete()
    entries.forget()
    clusters.adapters.drop_removed()
    assert "h100" not in clusters.adapters.made()


def test_a_cluster_of_the_same_name_is_another_one(people):
    row = added()
    before = clusters.get("h100")
    row.delete()
    added()
    assert clusters.get("h100") is not before


def test_the_setting_wins(people, settings):
    added("local")
    assert not entries.find("local").is_added
    with pytest.raises(InvalidInput, match="MUSTER_CLUSTERS"):
        cluster_entries.add(by=people.admin, name="local", options=OPTIONS, in_cluster=True)


def test_credentials_of_another_key_stop_nothing_and_are_told(people, settings):
    added(sealed=Fernet(Fernet.generate_key()).encrypt(b"{}").decode())
    with pytest.raises(Unreachable, match="MUSTER_SECRET_KEY was changed"):
        clusters.get("h100")
    assert "MUSTER_SECRET_KEY was changed" in inspecting.inspect("h100")[0].words


def test_only_platform_administrators(people):
    row = added()
    for by in (people.owner, people.stranger):
        with pytest.raises(NotAllowed):
            cluster_entries.add(by=by, name="x", options=OPTIONS, in_cluster=True)
        with pytest.raises(NotAllowed):
            cluster_entries.change(by=by, row=row, version=1, options=OPTIONS)
        with pytest.raises(NotAllowed):
            cluster_entries.remove(by=by, row=row)


def test_every_problem_is_told_at_once(people):
    with pytest.raises(InvalidInput) as error:
        cluster_entries.add(
            by=people.admin,
            name="Not/valid",
            kubeconfig="{",
            options={"KUBECONFIG": "/etc/x", "NAMESPACE": "A B", "ODD": 1},
        )
    assert {one.field for one in error.value.problems} == {
        "name", "kubeconfig", "options.KUBECONFIG", "options.NAMESPACE", "options.ODD", "options.IMAGE", "options.CONTROL_URL",
    }  # fmt: skip
    for given in ({}, {"in_cluster": True, "kubeconfig": "x"}):
        with pytest.raises(InvalidInput, match="and not both"):
            cluster_entries.add(by=people.admin, name="x", options=OPTIONS, **given)
    assert not AddedCluster.objects.exists()


@pytest.mark.parametrize(
    "server",
    [
        "https://127.0.0.1:6443",
        "https://10.0.0.7",
        "https://169.254.169.254",
        "https://[::1]:6443",
        "https://localhost:6443",
    ],
)
def test_addresses_of_the_servers_own_network_are_refused_unless_allowed(people, server):
    text = str({**AWAY, "clusters": [{"name": "c", "cluster": {"server": server}}]})
    with pytest.raises(InvalidInput, match="MUSTER_CLUSTER_NETWORKS"):
        cluster_entries.add(by=people.admin, name="x", options=OPTIONS, kubeconfig=text)


def test_of_two_administrators_the_second_is_told(people):
    row = added()
    stale = AddedCluster.objects.get(pk=row.pk)
    cluster_entries.change(by=people.admin, row=row, version=1, options=OPTIONS)
    with pytest.raises(Conflict, match=r"was changed by root at .* is version 2 by now, not 1"):
        cluster_entries.change(by=people.admin, row=stale, version=1, options=OPTIONS)
    entry = AuditEntry.objects.get(act="cluster.change")
    assert "secret-token" not in str((entry.before, entry.after)) and entry.after["NAMESPACE"] == "jobs"


def test_what_is_used_is_not_removed_and_allowances_go_with_it(people, team):
    row = added()
    queue = Queue.objects.create(name="train", team=team, cluster="h100", nominal=8)
    AllowedObject.objects.create(team=team, cluster="h100", kind="secret", name="data")
    with pytest.raises(Conflict, match="still used by queues train"):
        cluster_entries.remove(by=people.admin, row=row)
    queue.delete()
    cluster_entries.remove(by=people.admin, row=row)
    assert not clusters.is_known("h100") and not AllowedObject.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_the_watcher_begins_and_ends_with_them(people, monkeypatch):
    monkeypatch.setattr(watcher, "CLUSTERS_SECONDS", 0.02)
    monkeypatch.setattr(entries, "FRESH_SECONDS", 0.0)
    stop = threading.Event()
    thread = threading.Thread(target=watcher.watch, args=(stop,), daemon=True)
    thread.start()

    def watched() -> set[str]:
        return {one.name for one in threading.enumerate() if one.name.endswith("-h100")}

    try:
        assert not watched()
        row = added()
        until(lambda: watched() == {"follow-h100", "write-h100"})
        row.delete()
        until(lambda: not watched())
    finally:
        stop.set()
        thread.join()


PAGES = ("/new-cluster", "/clusters/h100/settings")


def test_the_pages_ask_for_the_password_and_never_show_the_file(as_, people):
    added()
    client = as_(people.admin)
    for page in PAGES:
        assert client.get(page).status_code == 200
        assert as_(people.owner).get(page).status_code == 403
        answer = client.post(
            page,
            {"namespace": "jobs", "image": "x", "control_url": "https://m.example", "password": "wrong", "version": 1},
        )
        assert answer.status_code == 422 and "not your current password" in answer.content.decode()
    shown = client.get(PAGES[1]).content.decode()
    assert "secret-token" not in shown and "https://127.0.0.1:1" in shown


def test_a_form_that_is_refused_comes_back_as_it_was_sent_without_the_password(as_, people):
    sent = {
        "name": "h100", "kubeconfig": "{", "namespace": "N!", "image": "", "control_url": "https://m.example",
        "more": "- a", "password": "root-has-a-password",
    }  # fmt: skip
    answer = as_(people.admin).post("/new-cluster", sent)
    shown = answer.content.decode()
    assert answer.status_code == 422 and "Must be options" in shown and "root-has-a-password" not in shown
    answer = as_(people.admin).post("/new-cluster", {**sent, "more": "JOB_CLAIM: 7"})
    shown = answer.content.decode()
    assert (
        "Must be the name of a namespace" in shown
        and "Is not valid YAML" in shown
        and "JOB_CLAIM must be text" in shown
    )
    assert not AddedCluster.objects.exists()


def test_the_api_asks_for_the_password_too(as_, people):
    added()
    client, json = as_(people.admin), {"content_type": "application/json"}
    answer = client.patch("/api/v1/clusters/h100", {"version": 1, "options": OPTIONS, "password": "wrong"}, **json)
    assert answer.status_code == 422 and "password" in answer.content.decode()
    right = {"password": "root-has-a-password"}
    answer = client.patch("/api/v1/clusters/h100", {"version": 7, "options": OPTIONS, **right}, **json)
    assert answer.status_code == 409
    answer = client.patch("/api/v1/clusters/h100", {"version": 1, "options": OPTIONS, **right}, **json)
    assert answer.status_code == 200 and answer.json()["version"] == 2 and "secret-token" not in answer.content.decode()
    assert client.post("/api/v1/clusters/local/remove", right, **json).status_code == 422
    assert client.post("/api/v1/clusters/nowhere/remove", right, **json).status_code == 404
    assert client.post("/api/v1/clusters/h100/remove", right, **json).status_code == 204
    assert client.get("/api/v1/clusters/h100").status_code == 404
