"""A kubeconfig that somebody sends: a server, its authority and one credential are taken, everything else is refused by name."""

import base64
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from common.errors import InvalidInput
from jobs.clusters.kubernetes.build import kubeconfig

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
SECRET = "eyJhbGciOi.top.secret"


def pair(*, days: int = 30) -> tuple[str, str]:
    """A certificate and its key, each as PEM in base64."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "muster")])
    builder = x509.CertificateBuilder(
        name, name, key.public_key(), 1, NOW - timedelta(days=60), NOW + timedelta(days=days)
    )
    written = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return base64.b64encode(written).decode(), base64.b64encode(secret).decode()


AUTHORITY, KEY = pair()


def document(*, cluster=None, user=None, **more) -> dict:
    cluster = (
        {"server": "https://kube.example:6443", "certificate-authority-data": AUTHORITY} if cluster is None else cluster
    )
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": SECRET} if user is None else user}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "n"}}], **more,
    }  # fmt: skip


def refused(given, **more) -> dict[str, str]:
    text = given if isinstance(given, str) else yaml.safe_dump(given)
    with pytest.raises(InvalidInput) as error:
        kubeconfig.read(text, now=NOW, **more)
    assert SECRET not in str(error.value) and KEY not in str(error.value)
    return {one.field: one.message for one in error.value.problems}


def test_what_is_taken_leads_to_one_cluster_with_one_credential():
    found = kubeconfig.read(yaml.safe_dump(document(extensions=[])), now=NOW)
    assert (found.server, found.host) == ("https://kube.example:6443", "kube.example")
    assert found.content["users"] == [{"name": "muster", "user": {"token": SECRET}}]
    cluster = {"server": "https://kube.example:6443", "certificate-authority-data": AUTHORITY}
    assert found.content["clusters"] == [{"name": "cluster", "cluster": cluster}]
    certificate = {"client-certificate-data": AUTHORITY, "client-key-data": KEY}
    found = kubeconfig.read(yaml.safe_dump(document(user=certificate)), now=NOW)
    assert found.content["users"][0]["user"] == certificate


@pytest.mark.parametrize(
    "key", ["exec", "auth-provider", "tokenFile", "username", "password", "client-key", "client-certificate", "as"]
)
def test_what_runs_programs_or_reads_files_is_refused_by_its_name(key):
    found = refused(document(user={"token": SECRET, key: {"command": "id"} if key == "exec" else "/etc/passwd"}))
    assert list(found) == [f"kubeconfig.user.{key}"]
    assert "token, client-certificate-data, client-key-data" in found[f"kubeconfig.user.{key}"]


@pytest.mark.parametrize(
    "key", ["proxy-url", "insecure-skip-tls-verify", "certificate-authority", "disable-compression"]
)
def test_what_weakens_or_redirects_the_connection_is_refused_by_its_name(key):
    found = refused(document(cluster={"server": "https://kube.example", key: True}))
    assert list(found) == [f"kubeconfig.cluster.{key}"]


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ("http://kube.example", "only https:// is taken"),
        ("ftp://kube.example", "only https:// is taken"),
        ("kube.example:6443", "must be the address"),
        ("https://a:b@kube.example", "must be the address"),
        ("https://kube.example/?x=1", "must be the address"),
        ("https://kube.example:99999", "must be the address"),
        ("https://ku be", "must be the address"),
        ("", "must be the address"),
        (None, "must be the address"),
        (17, "must be the address"),
    ],
)  # fmt: skip
def test_a_server_is_an_address_over_https(server, words):
    assert words in refused(document(cluster={"server": server}))["kubeconfig.cluster.server"]


def test_certificates_that_are_over_or_none_are_refused_with_their_date():
    old, key = pair(days=-3)
    user = {"client-certificate-data": old, "client-key-data": key}
    assert (
        "has expired on 2026-11-25 12:00 UTC" in refused(document(user=user))["kubeconfig.user.client-certificate-data"]
    )
    cluster = {"server": "https://kube.example", "certificate-authority-data": old}
    assert "has expired" in refused(document(cluster=cluster))["kubeconfig.cluster.certificate-authority-data"]
    cluster["certificate-authority-data"] = "bm9uZQ=="
    assert "no certificate" in refused(document(cluster=cluster))["kubeconfig.cluster.certificate-authority-data"]


def test_a_key_belongs_to_its_certificate():
    other, _ = pair()
    found = refused(document(user={"client-certificate-data": other, "client-key-data": KEY}))
    assert found == {"kubeconfig.user.client-key-data": "is the key of another certificate"}
    assert "alone" in refused(document(user={"client-certificate-data": other}))["kubeconfig.user"]
    found = refused(document(user={"client-certificate-data": other, "client-key-data": "%%"}))
    assert "no private key" in found["kubeconfig.user.client-key-data"]


def test_somebody_without_credentials_and_a_token_with_a_line_in_it():
    assert "has no credentials" in refused(document(user={}))["kubeconfig.user"]
    assert "is no token" in refused(document(user={"token": "a b"}))["kubeconfig.user.token"]
    assert "is no token" in refused(document(user={"token": ["a"]}))["kubeconfig.user.token"]


def test_of_several_contexts_one_must_be_named():
    several = document(contexts=[{"name": name, "context": {"cluster": "c", "user": "u"}} for name in ("b", "a")])
    assert refused(several) == {"context": "must say which one is meant; the kubeconfig has: a, b"}
    assert refused(several, context="x") == {"context": "is no context of this kubeconfig; it has: a, b"}
    assert kubeconfig.read(yaml.safe_dump(several), context="a", now=NOW).host == "kube.example"
    many = document(contexts=[{"name": f"c{number:03}", "context": {}} for number in range(500)])
    assert refused(many)["context"].endswith("c009 and 490 more")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is no kubeconfig"),
        ("- a", "is no kubeconfig"),
        ("clusters: 1", "is no kubeconfig"),
        ("{", "is not valid YAML"),
        ("a: &x 1\nb: *x", "anchor"),
        ("a: !!python/object:os.system x", "tag"),
        ("x" * 5_000_000, "has 5000000 characters, of at most 65536"),
        ("{clusters: [], users: [], contexts: []}", "has no context"),
        ("{clusters: [1], users: [2], contexts: [{name: a, context: 3}]}", "names no cluster"),
        ("{clusters: [1], users: [2], contexts: [{name: a, context: {cluster: c}}]}", "has no cluster c"),
    ],
)  # fmt: skip
def test_what_is_no_kubeconfig_is_told_in_words(text, words):
    assert words in refused(text)["kubeconfig"]
