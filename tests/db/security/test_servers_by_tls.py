"""Connections to Postgres and Redis use TLS when their URLs say so, and only with a trusted certificate."""

import os
import subprocess
import sys
from urllib.parse import urlsplit

import pytest
from django.conf import settings

from common import addresses
from common.environment import BadSetting
from tests.support import tls

ASK_POSTGRES = """
import django; django.setup()
from django.db import connection
with connection.cursor() as cursor:
    cursor.execute("SELECT 40 + 2")
    print(cursor.fetchone()[0], connection.connection.pgconn.ssl_in_use)
"""
# The doorbell, the hints for browsers and Celery each open their own connection.
ASK_REDIS = """
import asyncio, django; django.setup()
from django.conf import settings
from redis.asyncio import Redis
from common.signals import doorbell
from controlplane.celery import app
bell = doorbell.redis_client()
bell.connection_pool.connection_kwargs.update(socket_timeout=60, socket_connect_timeout=60)  # not what is asked here
print(bell.ping())
print(asyncio.run(Redis.from_url(settings.REDIS_URL).ping()))
with app.connection_for_write() as link:
    link.ensure_connection(max_retries=1, timeout=60)
    print(link.default_channel.client.ping())
"""


def ask(code: str, **environment: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "controlplane.settings", **environment}
    environment["MUSTER_DB_POOL"] = "1"
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)


@pytest.fixture
def ca(tmp_path):
    return tls.authority(tmp_path, "ours")


@pytest.fixture
def postgres(ca, db):
    with tls.front(ca[1], tls.to_postgres, is_postgres=True) as found:
        known = settings.DATABASES["default"]
        found.url = f"postgres://{known['USER']}:{known['PASSWORD']}@127.0.0.1:{found.port}/{known['NAME']}"
        yield found


@pytest.fixture
def redis(ca):
    with tls.front(ca[1], tls.to_redis) as found:
        found.url = f"rediss://:{urlsplit(os.environ['REDIS_URL']).password}@127.0.0.1:{found.port}/0"
        yield found


def test_postgres_is_reached_by_tls_with_a_trusted_certificate(postgres, ca):
    ended = ask(ASK_POSTGRES, DATABASE_URL=f"{postgres.url}?sslmode=verify-full&sslrootcert={ca[0]}")
    assert ended.stdout.split() == ["42", "True"], ended.stderr
    assert postgres.secured


def test_postgres_with_an_untrusted_certificate_is_refused(postgres, tmp_path):
    other, _ = tls.authority(tmp_path, "theirs")
    at_once = "from django.conf import settings; del settings.DATABASES['default']['OPTIONS']['pool']" + ASK_POSTGRES
    ended = ask(at_once, DATABASE_URL=f"{postgres.url}?sslmode=verify-full&sslrootcert={other}")
    assert ended.returncode != 0 and not ended.stdout
    assert "certificate verify failed" in ended.stderr


def test_every_client_reaches_redis_by_tls(redis, ca):
    ended = ask(ASK_REDIS, REDIS_URL=f"{redis.url}?ssl_ca_certs={ca[0]}")
    assert ended.stdout.split() == ["True"] * 3, ended.stderr
    assert redis.secured >= 3


def test_redis_with_an_untrusted_certificate_is_refused(redis, tmp_path):
    other, _ = tls.authority(tmp_path, "theirs")
    for code in (ASK_REDIS, ASK_REDIS.replace("print(doorbell.redis_client().ping())", "")):
        ended = ask(code, REDIS_URL=f"{redis.url}?ssl_ca_certs={other}")
        assert ended.returncode != 0 and not ended.stdout
        assert "CERTIFICATE_VERIFY_FAILED" in ended.stderr


def test_celery_also_refuses_an_untrusted_certificate(redis, tmp_path):
    other, _ = tls.authority(tmp_path, "theirs")
    lines = [line for line in ASK_REDIS.splitlines() if "print(doorbell" not in line and "asyncio.run" not in line]
    ended = ask("\n".join(lines), REDIS_URL=f"{redis.url}?ssl_ca_certs={other}")
    assert ended.returncode != 0 and not ended.stdout
    assert not redis.secured


def test_a_certificate_for_another_address_is_refused(tmp_path):
    ca, pem = tls.authority(tmp_path, "elsewhere", "192.0.2.1")
    with tls.front(pem, tls.to_redis) as found:
        ended = ask(ASK_REDIS, REDIS_URL=f"rediss://:x@127.0.0.1:{found.port}/0?ssl_ca_certs={ca}")
    assert ended.returncode != 0 and not ended.stdout
    assert "IP address mismatch" in ended.stderr


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgres://db/muster?ssl_mode=require", "ssl_mode is not a known"),
        ("mysql://db/muster", "must begin with postgres://"),
    ],
)
def test_a_misspelt_database_url_is_refused_rather_than_used_without_tls(url, words):
    with pytest.raises(BadSetting, match=words):
        addresses.database(url, pool=1)


@pytest.mark.parametrize(
    ("url", "words"),
    [("http://redis/0", "redis:// or rediss://"), ("rediss://redis/0?ssl_cert_reqs=no", "one of required")],
)
def test_a_misspelt_redis_url_is_refused_too(url, words):
    with pytest.raises(BadSetting, match=words):
        addresses.broker_tls(url)


def test_options_reach_libpq_decoded():
    found = addresses.database(
        "postgresql://u%40x:p%2Fw@[::1]:5433/m?sslrootcert=%2Fetc%2Fca.pem&sslmode=require", pool=3
    )
    assert (found["USER"], found["PASSWORD"], found["HOST"], found["PORT"]) == ("u@x", "p/w", "::1", "5433")
    assert (found["OPTIONS"]["sslrootcert"], found["OPTIONS"]["sslmode"]) == ("/etc/ca.pem", "require")
    assert addresses.database("postgres://u@/m?host=/run/pg&port=99", pool=3)["HOST"] == "/run/pg"
