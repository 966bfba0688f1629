"""Every secret setting can be read from a file, so that no environment or command line has to contain it."""

import os
import subprocess
import sys

import pytest

from common.environment import SECRETS, BadSetting, secret, unfolded
from embedded import EmbeddedError
from embedded.instance import Instance
from embedded.launch import Launch
from jobs.clusters.replica_file import child_env

SHOW = """
import django; django.setup()
from django.conf import settings as s
d = s.DATABASES["default"]
files = s.STORAGES["default"]["OPTIONS"]
print(s.SECRET_KEY, *s.SECRET_KEY_FALLBACKS, d["PASSWORD"], s.REDIS_URL, s.CELERY_BROKER_URL, *s.CLUSTERS)
print(*(files[which]["OPTIONS"]["secret_key"] for which in ("new", "old")), s.MUSTER_TRACES_HEADERS)
"""
VALUES = {
    "MUSTER_SECRET_KEY": "key-from-a-file",
    "MUSTER_OLD_SECRET_KEYS": "older,oldest",
    "DATABASE_URL": "postgres://u:pass-from-a-file@h/d",
    "REDIS_URL": "redis://:redis-from-a-file@h/0",
    "MUSTER_CLUSTERS": '{"there": {"BACKEND": "x"}}',
    "MUSTER_FILES": "s3://key:files-from-a-file@bucket",
    "MUSTER_OLD_FILES": "s3://key:old-files-from-a-file@bucket",
    "OTEL_EXPORTER_OTLP_HEADERS": "authorization=headers-from-a-file",
}


@pytest.fixture
def files(tmp_path) -> dict[str, str]:
    """Each secret in a file, as Kubernetes mounts them, with the newline that an editor adds."""
    for name, value in VALUES.items():
        (tmp_path / name).write_text(f"{value}\n")
    return {f"{name}_FILE": str(tmp_path / name) for name in VALUES}


def read_settings(environment: dict[str, str]) -> subprocess.CompletedProcess:
    kept = {name: value for name, value in os.environ.items() if name not in SECRETS}
    kept |= {"DJANGO_SETTINGS_MODULE": "controlplane.settings", **environment}
    return subprocess.run([sys.executable, "-c", SHOW], env=kept, capture_output=True, text=True)


def test_each_setting_is_read_from_its_file(files):
    assert set(VALUES) == set(SECRETS)
    url = "redis://:redis-from-a-file@h/0"
    said = read_settings(files)
    stores = ["files-from-a-file", "old-files-from-a-file", "authorization=headers-from-a-file"]
    assert said.stdout.split() == [
        "key-from-a-file",
        "older",
        "oldest",
        "pass-from-a-file",
        url,
        url,
        "there",
        *stores,
    ], said.stderr


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"MUSTER_SECRET_KEY": "another"}, "both set"),
        ({"MUSTER_SECRET_KEY_FILE": "/nowhere/at/all"}, "No such file"),
        ({"MUSTER_SECRET_KEY_FILE": "/dev/null"}, "is empty"),
        ({"MUSTER_SECRET_KEY_FILE": "/"}, "Is a directory"),
    ],
)
def test_a_bad_file_is_reported_at_startup_without_its_content(files, change, words):
    ended = read_settings({**files, **change})
    assert ended.returncode == 1
    assert "MUSTER_SECRET_KEY_FILE" in ended.stderr and words in ended.stderr
    assert "from-a-file" not in ended.stderr


@pytest.mark.parametrize("path", ["/nowhere/at/all", "/dev/null"])
def test_a_file_of_earlier_keys_that_is_absent_or_empty_means_none(files, path):
    """docker-compose.yml names it always, and only an installation whose key was replaced has it."""
    said = read_settings({**files, "MUSTER_OLD_SECRET_KEYS_FILE": path})
    assert said.stdout.split()[:2] == ["key-from-a-file", "pass-from-a-file"], said.stderr


def test_a_file_of_earlier_keys_that_cannot_be_read_is_reported(files):
    said = read_settings({**files, "MUSTER_OLD_SECRET_KEYS_FILE": "/"})
    assert (said.returncode, "MUSTER_OLD_SECRET_KEYS_FILE names /" in said.stderr) == (1, True)


def test_the_content_of_a_file_that_is_not_text_is_not_shown(tmp_path):
    (tmp_path / "key").write_bytes(b"\xff\xfehush")
    with pytest.raises(BadSetting, match="no text") as error:
        secret("MUSTER_SECRET_KEY", environ={"MUSTER_SECRET_KEY_FILE": str(tmp_path / "key")})
    assert "hush" not in str(error.value)


def test_the_demo_reads_the_files_and_passes_the_values_to_its_processes(files, tmp_path):
    found = unfolded({**files, "HOME": "/home/x"})
    assert found == {**VALUES, "HOME": "/home/x"}
    launch = Launch(Instance(tmp_path / "data"), host="127.0.0.1", port=0, given=files)
    assert launch.servers.database_url == VALUES["DATABASE_URL"]
    with pytest.raises(EmbeddedError, match="both set"):
        Launch(Instance(tmp_path / "data"), host="127.0.0.1", port=0, given={**files, "REDIS_URL": "x"})


def test_the_environment_of_a_job_does_not_name_the_files(files):
    assert child_env({**files, "PATH": "/bin"}) == child_env({"PATH": "/bin"})
