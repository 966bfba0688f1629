"""Deliveries to a real receiver, which verifies the signature itself: sent, retried, given up, sent again."""

import socket
import threading
from datetime import timedelta
from ipaddress import ip_network

import pytest
from django.db import OperationalError, connection
from django.utils import timezone
from prometheus_client import REGISTRY

from accounts.models import Team
from jobs.models import Delivery, Webhook
from jobs.webhooks import request, sending, services
from jobs.webhooks.courier import Courier
from tests.support import receiver as receivers
from tests.support import tls
from tests.support.patience import PATIENCE_SECONDS, until

pytestmark = pytest.mark.django_db


def test_a_delivery_is_signed_and_arrives_as_the_payload(lab, hook, receiver, deliver):
    hook()
    job = lab.running()
    assert deliver() == 1
    (got,) = receiver.got
    row = Delivery.objects.get(job=job)
    assert got.is_signed_with(hook.secrets["chat"])
    assert not got.is_signed_with(services.sealing.new_secret())
    assert got.json == row.payload and got.json["data"]["job"]["id"] == job.pk
    assert (got.path, got.headers["host"]) == ("/hooks/T0/B0/path-secret", f"127.0.0.1:{receiver.port}")
    assert got.headers["content-type"] == "application/json"
    assert (row.state, row.tries, row.status_code, row.error) == ("delivered", 1, 200, "")
    assert deliver() == 0


def test_after_a_rotation_both_secrets_verify_for_a_day(lab, hook, boss, receiver, deliver):
    webhook = hook()
    _, fresh = services.rotate(webhook=webhook, by=boss)
    lab.running(nodes=1)
    deliver()
    assert receiver.got[0].is_signed_with(hook.secrets["chat"]) and receiver.got[0].is_signed_with(fresh)
    webhook.refresh_from_db()
    assert timedelta(hours=23) < webhook.old_secret_until - timezone.now() <= timedelta(hours=24)
    type(webhook).objects.update(old_secret_until=timezone.now())
    lab.running(nodes=1)
    deliver()
    assert receiver.got[1].is_signed_with(fresh) and not receiver.got[1].is_signed_with(hook.secrets["chat"])


def test_a_refused_delivery_is_tried_again_later_and_later_and_then_given_up(lab, hook, receiver, deliver):
    hook()
    job = lab.running()
    now, pauses = timezone.now(), []
    receiver.statuses = [500] * 9
    for _ in range(len(sending.PAUSES)):
        assert deliver(now) == 1
        row = Delivery.objects.get(job=job)
        pauses.append((row.next_try_at - timezone.now()).total_seconds())
        now = row.next_try_at
    for pause, least in zip(pauses, sending.PAUSES, strict=True):
        assert least - 5 < pause <= least * (1 + sending.JITTER)
    assert deliver(now) == 1
    row = Delivery.objects.get(job=job)
    assert (row.state, row.tries, row.status_code, row.error) == ("gave_up", 8, 500, "answered 500")
    assert len({one.id for one in receiver.got}) == 1 and len(receiver.got) == 8
    assert deliver(now + timedelta(days=30)) == 0


def test_a_receiver_that_is_gone_is_asked_once(lab, hook, receiver, deliver):
    hook()
    lab.running()
    receiver.statuses = [410]
    deliver()
    row = Delivery.objects.get()
    assert (row.state, row.tries, row.status_code) == ("gave_up", 1, 410)


def test_a_busy_receiver_is_asked_after_the_time_that_it_names(lab, hook, receiver, deliver):
    hook()
    lab.running()
    receiver.statuses, receiver.headers = [429], {"Retry-After": "900"}
    deliver()
    assert 890 < (Delivery.objects.get().next_try_at - timezone.now()).total_seconds() <= 900


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(lab, hook, receiver, deliver, status):
    hook()
    lab.running()
    with receivers.receiver() as elsewhere:
        receiver.statuses, receiver.headers = [status], {"Location": elsewhere.url}
        deliver()
        assert elsewhere.got == []
    row = Delivery.objects.get()
    assert row.state == "waiting"
    assert row.error == f"answered {status}, a redirect, which is not followed; enter the final URL"


def test_a_process_that_dies_between_sending_and_recording_sends_it_again_with_the_same_id(
    lab, hook, receiver, deliver, monkeypatch
):
    hook()
    lab.running()
    with monkeypatch.context() as patch:
        patch.setattr(sending, "record", lambda *_, **__: None)
        deliver()
    assert (Delivery.objects.get().state, deliver()) == ("waiting", 0)  # as long as its claim lasts
    assert deliver(timezone.now() + sending.LEASE) == 1
    first, second = receiver.got
    assert first.id == second.id and first.json == second.json
    assert Delivery.objects.get().state == "delivered"


def test_a_late_failure_does_not_undo_a_newer_try(lab, hook, receiver, deliver):
    hook()
    lab.running()
    now = timezone.now()
    (webhook,) = sending.due(now, most=1)
    slow = sending.claim(webhook, now=now)
    deliver(now + sending.LEASE)
    sending.record(slow, request.SendResult(500, "answered 500"), now=now)
    assert Delivery.objects.get().state == "delivered"


def test_a_late_failure_of_before_it_was_sent_again_does_not_count_as_the_new_ones(lab, hook, boss, receiver):
    """`send_again` counts tries anew, so the first try then and the first try now have the same number."""
    webhook = hook()
    lab.running()
    now = timezone.now()
    slow = sending.claim(webhook.pk, now=now)
    services.send_again(delivery=Delivery.objects.get(), by=boss)
    fresh = sending.claim(webhook.pk, now=timezone.now())
    assert slow.tries == fresh.tries == 1
    before = Delivery.objects.values().get()
    sending.record(slow, request.SendResult(410, "answered 410", is_final=True), now=now)
    assert Delivery.objects.values().get() == before
    sending.record(fresh, request.SendResult(500, "answered 500"), now=timezone.now())
    assert Delivery.objects.get().status_code == 500


def test_a_long_answer_is_read_in_part_only(lab, hook, receiver, deliver):
    receiver.answer = b"x" * 50_000_000
    hook()
    lab.running()
    deliver()
    assert Delivery.objects.get().state == "delivered"


def test_a_receiver_without_an_answer_is_a_failure_with_a_reason(lab, hook, receiver, deliver, monkeypatch):
    monkeypatch.setattr(request, "SECONDS", 0.2)
    hook()
    lab.running()
    receiver.gate.clear()
    deliver()
    row = Delivery.objects.get()
    assert (row.state, row.status_code) == ("waiting", None)
    assert row.error.startswith("no answer within")


def test_a_port_that_nobody_listens_at_is_a_failure_with_a_reason(lab, hook, settings, deliver):
    with receivers.receiver() as gone:
        hook(url=gone.url)
    lab.running()
    deliver()
    row = Delivery.objects.get()
    assert row.error.startswith("cannot connect") and "path-secret" not in row.error


def test_no_proxy_of_the_environment_is_used(lab, hook, receiver, deliver, monkeypatch):
    with receivers.receiver() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        hook()
        lab.running()
        deliver()
        assert (len(receiver.got), proxy.got) == (1, [])


@pytest.mark.parametrize(("name", "is_right"), [("hooks.example", True), ("other.example", False)])
def test_the_certificate_must_be_for_the_name_though_the_request_goes_to_an_address(
    lab, hook, settings, deliver, monkeypatch, tmp_path, name, is_right
):
    settings.WEBHOOK_NETWORKS = [ip_network("127.0.0.0/8")]
    authority, pem = tls.authority(tmp_path, "receiver", name)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    request.tls.cache_clear()
    resolve_to(monkeypatch, "127.0.0.1")
    with receivers.receiver(pem) as secure:
        hook(url=secure.url.replace("127.0.0.1", "hooks.example"))
        lab.running()
        deliver()
        row = Delivery.objects.get()
        assert row.state == ("delivered" if is_right else "waiting")
        assert [one.headers["host"] for one in secure.got] == ([f"hooks.example:{secure.port}"] if is_right else [])
        assert is_right or "certificate" in row.error
    request.tls.cache_clear()


def resolve_to(monkeypatch, *addresses: str) -> None:
    """Have every name that ends in .example be looked up with these results, one after the other, then the last."""
    real, left = socket.getaddrinfo, list(addresses)

    def lookup(host, port, *rest, **options):
        if not str(host).endswith(".example"):
            return real(host, port, *rest, **options)
        address = left.pop(0) if len(left) > 1 else left[0]
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return [(family, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)


def test_a_name_that_leads_elsewhere_at_the_second_look_is_refused(lab, hook, settings, receiver, deliver, monkeypatch):
    """Once when it is saved, once when it is sent: the second look-up leads to an address that is not allowed."""
    settings.WEBHOOK_NETWORKS = [ip_network("127.0.0.1")]
    resolve_to(monkeypatch, "127.0.0.1", "127.0.0.2")
    hook(url=receiver.url.replace("127.0.0.1", "moving.example"))
    lab.running()
    deliver()
    row = Delivery.objects.get()
    assert receiver.got == [] and row.status_code is None
    assert "127.0.0.2, which is not a public address; if requests may go there, add its network" in row.error


def test_between_the_check_and_the_connection_nothing_is_looked_up(lab, hook, settings, receiver, deliver, monkeypatch):
    settings.WEBHOOK_NETWORKS = [ip_network("127.0.0.1")]
    resolve_to(monkeypatch, "127.0.0.1", "127.0.0.1", "127.0.0.2")
    hook(url=receiver.url.replace("127.0.0.1", "moving.example"))
    lab.running()
    deliver()
    assert Delivery.objects.get().state == "delivered"
    assert receiver.got[0].headers["host"] == f"moving.example:{receiver.port}"


def test_a_delivery_is_sent_again_on_request_with_the_id_it_had(lab, hook, boss, receiver, deliver):
    hook()
    lab.running()
    receiver.statuses = [410]
    deliver()
    services.send_again(delivery=Delivery.objects.get(), by=boss)
    deliver()
    assert Delivery.objects.get().state == "delivered"
    assert receiver.got[0].id == receiver.got[1].id


def test_what_waits_is_given_up_when_the_webhook_is_switched_off(lab, hook, boss, receiver, deliver):
    webhook = hook()
    lab.running()
    services.change(webhook=webhook, by=boss, is_active=False)
    assert (Delivery.objects.get().state, Delivery.objects.get().error) == ("gave_up", sending.OFF)
    Delivery.objects.update(gave_up_at=None, next_try_at=timezone.now())  # written by a step that began before
    deliver()
    assert (Delivery.objects.get().state, receiver.got) == ("gave_up", [])


def test_a_new_key_of_the_server_is_said_and_retried(lab, hook, receiver, deliver, settings):
    hook()
    lab.running()
    settings.SECRET_KEY = "another key of the server, without the old one"
    deliver()
    assert "MUSTER_SECRET_KEY was changed since this webhook was saved; enter its URL again" in (
        Delivery.objects.get().error
    )


def test_old_deliveries_are_forgotten_and_waiting_ones_are_not(lab, hook, receiver, deliver, settings):
    hook()
    job = lab.running()
    deliver()
    lab.finish(job, 0, 0)
    later = timezone.now() + timedelta(days=settings.MUSTER_JOB_DAYS + 1)
    assert sending.forget(now=timezone.now()) == 0
    assert sending.forget(now=later) == 1
    assert Delivery.objects.get().event == "succeeded"


def test_what_was_delivered_late_is_kept_from_then_on(lab, hook, receiver, deliver, settings):
    hook()
    lab.running()
    age = timedelta(days=settings.MUSTER_JOB_DAYS - 1)
    now = timezone.now()
    Delivery.objects.update(created_at=now - age)
    deliver()
    assert sending.forget(now=now + timedelta(days=2)) == 0
    Delivery.objects.update(delivered_at=None, gave_up_at=now)
    assert sending.forget(now=now + timedelta(days=2)) == 0
    assert sending.forget(now=now + timedelta(days=settings.MUSTER_JOB_DAYS + 1)) == 1


def test_each_request_is_counted_by_its_result(lab, hook, receiver, deliver):
    def count(result):
        return REGISTRY.get_sample_value("muster_webhook_deliveries_total", {"result": result}) or 0

    before = {result: count(result) for result in ("delivered", "failed", "gave_up")}
    hook()
    lab.running()
    receiver.statuses = [500, 410]
    now = timezone.now()
    for _ in range(2):
        deliver(now)
        now += timedelta(seconds=60)
    assert {result: count(result) - before[result] for result in before} == {"delivered": 0, "failed": 1, "gave_up": 1}


@pytest.mark.django_db(transaction=True)
def test_a_slow_receiver_delays_its_own_deliveries_and_no_others(lab, hook, receiver):
    with receivers.receiver() as slow:
        slow.gate.clear()
        hook("slow", url=slow.url, events=["start"])
        hook("quick", events=["end"])
        jobs = [lab.running(nodes=1, nproc_per_node=1) for _ in range(6)]
        courier = Courier(threads=4)
        assert courier.look() == 1  # of six that are due
        assert slow.asked.wait(PATIENCE_SECONDS)
        lab.finish(jobs[0], 0)
        courier.look()
        assert receiver.asked.wait(PATIENCE_SECONDS)
        assert len(slow.got) == 1
        slow.gate.set()
        assert courier.settle(PATIENCE_SECONDS)
        courier.close()
    assert Delivery.objects.get(event="succeeded").state == "delivered"


@pytest.fixture
def elsewhere(people, receiver) -> Webhook:
    """A webhook of another team."""
    team = Team.objects.get(name="vision")
    return services.create(team=team, by=people.stranger, name="prompt", url=receiver.url, events=["end"])[0]


def put(*hooks: Webhook, count: int = 1, age: timedelta) -> None:
    """Deliveries of these webhooks that have been due for so long."""
    at = timezone.now() - age
    rows = [
        Delivery(webhook=one, event="ping", payload={}, created_at=at, next_try_at=at)
        for one in hooks
        for _ in range(count)
    ]
    Delivery.objects.bulk_create(rows)


@pytest.mark.django_db(transaction=True)
def test_many_receivers_of_one_team_that_hang_do_not_delay_another_team(hook, elsewhere, receiver):
    with receivers.receiver() as slow:
        slow.gate.clear()
        put(*(hook(f"slow-{number}", url=slow.url) for number in range(10)), count=3, age=timedelta(hours=1))
        courier = Courier()
        courier.look()
        put(elsewhere, age=timedelta(0))
        courier.look()
        assert receiver.asked.wait(PATIENCE_SECONDS)
        until(lambda: Delivery.objects.get(webhook=elsewhere).state == "delivered")
        assert Delivery.objects.filter(delivered_at=None, tries=1).count() == courier.threads // 2
        slow.gate.set()
        assert courier.settle(PATIENCE_SECONDS)
        courier.close()


def test_teams_take_turns_and_those_with_the_fewest_requests_under_way_are_next(hook, elsewhere):
    ours = [hook(f"hook-{number}") for number in range(6)]
    for position, one in enumerate(ours):
        put(one, age=timedelta(hours=6 - position))
    put(elsewhere, age=timedelta(0))
    now, first, second = timezone.now(), *(one.pk for one in ours[:2])
    assert sending.due(now, most=3) == [first, elsewhere.pk, second]
    assert sending.due(now, most=1, busy={first: ours[0].team_id}) == [elsewhere.pk]
    busy = {elsewhere.pk: elsewhere.team_id}
    assert sending.due(now, most=9, most_of_team=4, busy=busy) == [one.pk for one in ours[:4]]
    assert sending.due(now, most=9, most_of_team=1, busy=busy | {first: ours[0].team_id}) == []


@pytest.mark.django_db(transaction=True)
def test_what_is_due_is_found_without_any_message_and_a_full_courier_goes_on_when_it_has_room(lab, hook, receiver):
    for name in ("one", "two", "three"):
        hook(name)
    job = lab.running()
    courier = Courier(threads=1)
    courier.start()
    waiting = Delivery.objects.filter(job=job, delivered_at=None)
    until(lambda: not waiting.exists())
    lab.finish(job, 0, 0)
    until(lambda: not waiting.exists())
    courier.close()
    assert len({one.id for one in receiver.got}) == len(receiver.got) == 6


@pytest.mark.django_db(transaction=True)
def test_a_courier_goes_on_after_the_database_was_away(lab, hook, receiver, monkeypatch):
    hook()
    job = lab.running()
    real, failures = sending.due, [OperationalError("the database is away")] * 2

    def due(*args, **options):
        if failures:
            raise failures.pop()
        return real(*args, **options)

    monkeypatch.setattr(sending, "due", due)
    courier = Courier()
    courier.start()
    until(lambda: Delivery.objects.get(job=job).state == "delivered")
    courier.close()


@pytest.mark.django_db(transaction=True)
def test_a_delivery_is_claimed_by_one_of_many(lab, hook, receiver):
    hook()
    lab.running()
    now, barrier, claims = timezone.now(), threading.Barrier(6), []
    webhook = Delivery.objects.get().webhook_id

    def one():
        barrier.wait()
        claims.append(sending.claim(webhook, now=now))
        connection.close()

    threads = [threading.Thread(target=one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([one for one in claims if one]) == 1


@pytest.mark.django_db(transaction=True)
def test_no_transaction_and_no_connection_is_held_while_a_request_is_under_way(lab, hook, receiver, monkeypatch):
    hook()
    lab.running()
    held = []
    real = sending.post

    def look(*args, **options):
        held.append((connection.connection is not None, connection.in_atomic_block))
        return real(*args, **options)

    monkeypatch.setattr(sending, "post", look)
    claim = sending.claim(Delivery.objects.get().webhook_id, now=timezone.now())
    sending.deliver(claim)
    assert held == [(False, False)]
    assert Delivery.objects.get().state == "delivered"
