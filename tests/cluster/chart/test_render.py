"""What the chart renders of five typical values, and which values it refuses."""

import re
from pathlib import Path

import pytest
import yaml

from rig import helm
from tests.cluster.chart.conftest import EXAMPLES

ROOT = Path(__file__).resolve().parents[3]
MINIMAL = ("image.repository=r/m", "publicUrl=https://m", "postgres.embedded=true", "redis.embedded=true")
SETS = ("--set", "image.repository=r/muster", "--set", "publicUrl=https://m.example.com")


def test_the_five_examples_are_there():
    assert EXAMPLES == ["gateway", "ingress", "large", "other-clusters", "try-out"]


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_renders_as_before(render, golden, example):
    """After an intended change delete the golden file: the test writes it again and fails once, so that the diff is reviewed."""
    text, file = shown(render(example)), golden / f"{example}.yaml"
    if not file.exists():
        file.write_text(text)
        pytest.fail(f"{file} was missing and is written")
    assert text == file.read_text()


def shown(objects) -> str:
    """The objects as text, without what is made by chance."""
    text = yaml.safe_dump_all(objects, sort_keys=True, width=120)
    for made in sorted({*re.findall(r"(?:_password|secret_key): (\w{48,64})\n", text)}):
        text = text.replace(made, "MADE-BY-CHANCE")
    return text


@pytest.mark.parametrize("example", EXAMPLES)
def test_helm_has_nothing_to_object(render, example):
    said = helm.helm("lint", "--strict", str(helm.CHART), "-f", str(helm.EXAMPLES / f"{example}.yaml"))
    assert "0 chart(s) failed" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "image.repository is not set"),
        (("image.repository=r/m",), "publicUrl is not set"),
        (("image.repository=r/m", "publicUrl=https://m"), "secrets.existing is not set"),
        (("image.repository=r/m:1",), "/image/repository"),
        (("publicUrl=m.example.com",), "/publicUrl"),
        (("web.replicas=0",), "/web/replicas"),
        (("web.replica=2",), "'replica' not allowed"),
        (("secondFactor=yes please",), "/secondFactor"),
        (("settings.MUSTER_SECRET_KEY=x",), "MUSTER_SECRET_KEY"),
        (("settings.MUSTER_HTTPS=x",), "MUSTER_HTTPS"),
        (("settings.MUSTER_LOG_DAYS=30",), "/settings/MUSTER_LOG_DAYS"),
        (("jobs.namespaces={a.b}",), "/jobs/namespaces"),
        (("clusters.lab.NAMESPACE=x",), "IMAGE"),
        (("service.port=70000",), "/service/port"),
        (("postgres.size=ten",), "/postgres/size"),
        (("traces.collector=collector:4318",), "/traces/collector"),
        (("traces.sample=10",), "/traces/sample"),
        (("settings.MUSTER_TRACES=http://c",), "MUSTER_TRACES"),
        (("settings.MUSTER_LISTEN_PORT=80",), "MUSTER_LISTEN_PORT"),
        (("data.size=",), "/data/size"),
        (("web.resources.cpu=1",), "/web/resources"),
        (("gateway.enabled=true",), "/gateway/parentRefs"),
        (("clusters.lab.IMAGE=7",), "/clusters/lab/IMAGE"),
        (("trustedProxies={10.0.0.0/40}",), "/trustedProxies"),
        (("migrationSeconds=10",), "/migrationSeconds"),
        (("settings.AWS_SECRET_ACCESS_KEY=x",), "AWS_SECRET_ACCESS_KEY"),
        (("clusters.lab.IMAGE=t:1", "clusters.lab.KUBECONFIG=/etc/muster/lab"), "CONTROL_URL"),
        (("publicUrl=https://m.example.com?next=1",), "/publicUrl"),
        (("publicUrl=https://M.example.com",), "/publicUrl"),
        ((*MINIMAL, "podLabels.muster/files=own"), "podLabels: muster/files is set"),
        ((*MINIMAL, "podLabels.app\\.kubernetes\\.io/component=x"), "podLabels: app.kubernetes.io/component is set"),
        ((*MINIMAL, "metrics.enabled=true", "metrics.port=8000"), "metrics.port is 8000"),
        ((*MINIMAL, "jobs.namespaces={default}"), "jobs.namespaces names default"),
        ((*MINIMAL, "data.objectStorage=true"), "no key files_url"),
        ((*MINIMAL, "secrets.hasOldKeys=true"), "no key old_secret_keys"),
    ],
)
def test_a_wrong_value_is_refused_by_name(render, words, said):
    sets = [part for word in words for part in ("--set", word)]
    with pytest.raises(helm.HelmError) as refused:
        helm.helm("template", "muster", str(helm.CHART), *sets)
    assert said in str(refused.value), str(refused.value)


def test_the_account_has_the_rights_of_deploy_account_yaml_and_no_others(render):
    wanted = {
        (one["metadata"]["name"], str(one["rules"]))
        for one in yaml.safe_load_all((ROOT / "deploy/account.yaml").read_text())
        if one["kind"] == "Role"
    }
    objects = render("ingress")
    assert {(one["metadata"]["name"], str(one["rules"])) for one in objects if one["kind"] == "Role"} == wanted
    (nodes,) = [one for one in objects if one["kind"] == "ClusterRole"]
    (rules, _) = yaml.safe_load_all((ROOT / "deploy/nodes.yaml").read_text())
    assert nodes["rules"] == rules["rules"]
    assert not [one for one in render("other-clusters") if one["kind"] == "ClusterRole"]


def test_further_rights_in_the_whole_cluster_are_those_of_the_files_in_deploy(render):
    """Their names begin with the release's, so that two releases in one cluster do not share them."""
    values = ("seeForeignPods", "watchAllNamespaces", "makeTeamNamespaces")
    objects = render("ingress", *(word for one in values for word in ("--set", f"jobs.{one}=true")))
    found = {one["metadata"]["name"]: one["rules"] for one in objects if one["kind"] == "ClusterRole"}
    wanted = {}
    for file in ("nodes", "foreign-pods", "all-namespaces", "team-namespaces"):
        text = (ROOT / f"deploy/{file}.yaml").read_text().replace("muster-jobs-", "muster-muster-")
        wanted |= {
            one["metadata"]["name"]: one["rules"] for one in yaml.safe_load_all(text) if one["kind"] == "ClusterRole"
        }
    assert found == wanted
    bound = {one["roleRef"]["name"] for one in objects if one["kind"] == "ClusterRoleBinding"}
    assert wanted.keys() - bound == {"muster-muster-team", "muster-muster-team-reader"}, "bound in namespaces alone"


def test_the_account_is_outside_of_the_namespaces_of_jobs(render):
    """Whoever may create pods in its namespace could run one with it. deploy/account.yaml does as the chart does."""
    deployed = list(yaml.safe_load_all((ROOT / "deploy/account.yaml").read_text()))
    for found, home in ((render("ingress"), "muster"), (deployed, "muster-system")):
        (binding,) = [one for one in found if (one["kind"], one["metadata"]["name"]) == ("RoleBinding", "muster")]
        assert binding["metadata"]["namespace"] == "muster-jobs"
        assert binding["subjects"][0] == {"kind": "ServiceAccount", "name": "muster", "namespace": home}


def test_only_the_processes_that_reach_clusters_have_the_account(render):
    of = {}
    for one in render("try-out"):
        pod = one["spec"] if one["kind"] == "Pod" else one.get("spec", {}).get("template", {}).get("spec")
        if pod:
            of[one["metadata"]["name"]] = pod.get("automountServiceAccountToken", True)
    assert {name for name, has in of.items() if has} == {
        "muster-web", "muster-tasks", "muster-watcher", "muster-test",
    }  # fmt: skip


def test_no_secret_is_in_an_environment(render):
    """Secrets are files: `kubectl describe pod` shows the environment."""
    objects = render("try-out")
    (secret,) = [one for one in objects if one["kind"] == "Secret"]
    made = [value for name, value in secret["stringData"].items() if name.endswith(("password", "key"))]
    rest = yaml.safe_dump_all([one for one in objects if one["kind"] != "Secret"])
    assert len(made) == 3 and not [secret for secret in made if secret in rest]


@pytest.mark.parametrize(
    ("example", "words", "name", "hook"),
    [
        ("ingress", (), "muster-migrate-1", None),
        ("ingress", ("--is-upgrade",), "muster-migrate", "pre-upgrade"),
        ("try-out", (), "muster-migrate-1", None),
        ("try-out", ("--is-upgrade",), "muster-migrate-1", None),  # its Postgres may be what the upgrade repairs
    ],
)
def test_the_migration_is_a_hook_where_the_database_is_outside(render, example, words, name, hook):
    (job,) = [one for one in render(example, *words) if one["kind"] == "Job"]
    assert (job["metadata"]["name"], job["metadata"].get("annotations", {}).get("helm.sh/hook")) == (name, hook)
    assert ("activeDeadlineSeconds" in job["spec"]) is bool(hook), "it must not go on after its upgrade has failed"
    words = job["spec"]["template"]["spec"]["containers"][0]["args"]
    # The log of a hook that succeeded is deleted with it, so it must not be where a password is told. It gives up by itself,
    # with its reason, before the deadline deletes its pod and its log.
    limit = job["spec"].get("activeDeadlineSeconds", 0) - 30
    assert words == ["migrate", *(["--within", str(limit)] if hook else ["--first-admin", "admin"])]


def test_what_libraries_read_and_an_accounts_role_can_be_set(render):
    words = (
        "settings.SSL_CERT_FILE=/etc/muster/ca.crt",
        "settings.AWS_REGION=eu-west-1",
        "serviceAccount.annotations.role=reader",
    )
    found = render("ingress", *(part for word in words for part in ("--set-string", word)))
    deployed = [one["spec"]["template"]["spec"] for one in found if one["kind"] == "Deployment"]
    for pod in deployed:
        env = {one["name"]: one["value"] for one in pod["containers"][0]["env"]}
        assert (env["SSL_CERT_FILE"], env["AWS_REGION"]) == ("/etc/muster/ca.crt", "eu-west-1")
    (account,) = [one for one in found if (one["kind"], one["metadata"]["name"]) == ("ServiceAccount", "muster")]
    assert account["metadata"]["annotations"] == {"role": "reader"}


@pytest.mark.parametrize(
    ("url", "host"),
    [("http://[fd00::1]:8000", "[fd00::1]"), ("https://m.example.com:8443", "m.example.com"), ("https://m", "m")],
)
def test_the_public_address_is_an_allowed_host(render, url, host):
    found = render("try-out", "--set", f"publicUrl={url}")
    (web,) = [one for one in found if (one["kind"], one["metadata"]["name"]) == ("Deployment", "muster-web")]
    env = {one["name"]: one["value"] for one in web["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert host in env["MUSTER_ALLOWED_HOSTS"].split(",")


def test_every_process_sends_its_spans_to_the_collector(render):
    assert "MUSTER_TRACES" not in str(render("ingress"))
    words = ("traces.collector=http://c:4318", "traces.sample=0.5", "traces.hasHeaders=true")
    found = render("ingress", *(part for word in words for part in ("--set", word)))
    deployed = [one["spec"]["template"]["spec"] for one in found if one["kind"] == "Deployment"]
    assert len(deployed) == 4
    for pod in deployed:
        env = {one["name"]: one["value"] for one in pod["containers"][0]["env"]}
        assert (env["MUSTER_TRACES"], env["MUSTER_TRACES_SAMPLE"]) == ("http://c:4318", "0.5")
        keys = next(one["secret"]["items"] for one in pod["volumes"] if one["name"] == "keys")
        assert {"key": "traces_headers", "path": Path(env["OTEL_EXPORTER_OTLP_HEADERS_FILE"]).name} in keys


def test_a_new_version_does_not_restart_the_charts_own_servers(render):
    for one in render("try-out"):
        if one["kind"] == "StatefulSet":
            assert not [
                name for name in one["spec"]["template"]["metadata"]["labels"] if "version" in name or "chart" in name
            ]


def test_a_volume_of_one_node_keeps_its_pods_together(render):
    """Pods that do not mount it may run anywhere: a migration must not wait for a volume."""
    of = {one["metadata"]["name"]: one for one in render("try-out") if one["kind"] in ("Deployment", "Job", "Pod")}
    pods = {name: one if one["kind"] == "Pod" else one["spec"]["template"] for name, one in of.items()}
    claims = {
        name: any("persistentVolumeClaim" in volume for volume in pod["spec"]["volumes"]) for name, pod in pods.items()
    }
    together = {name for name, pod in pods.items() if "podAffinity" in pod["spec"].get("affinity", {})}
    assert {name for name, has in claims.items() if has} == together == {"muster-web", "muster-tasks", "muster-test"}
    for name in together:
        (term,) = pods[name]["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["labelSelector"]["matchLabels"].items() <= pods[name]["metadata"]["labels"].items()
    assert not [one for one in render("ingress") if "affinity" in str(one.get("spec", {}))]
