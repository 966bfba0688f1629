"""A queue's template: what is malformed, what it may do, which objects it names, and the layer that it is for a role."""

import pytest

from jobs import frameworks
from jobs.core import pod_rights, pod_template
from jobs.core.plan import Role
from jobs.core.spec import parse
from queues.shape import merge, of_resources

NODE = {"cpus": "96", "memory": "512Gi", "gpu_type": "h100-80gb", "resource": "nvidia.com/gpu"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
SIDECAR = {"name": "proxy", "image": "proxy:1", "volumeMounts": [{"name": "cache", "mountPath": "/cache"}]}
FULL = {
    "node": NODE,
    "shm_per_gpu": "8Gi",
    "locked": ["image", "tolerations"],
    "pods": {
        "service_account": "train", "scheduler": "gang", "pull_secrets": ["registry"],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        "security": {"seccompProfile": {"type": "RuntimeDefault"}}, "init_containers": [{"name": "warm", "image": "warm:1"}],
        "sidecars": [SIDECAR], "volumes": [{"name": "cache", "emptyDir": {}}],
        "mounts": [{"name": "cache", "mountPath": "/cache"}],
    },
}  # fmt: skip


def problems(document) -> dict[str, str]:
    found = []
    pod_template.parse(document, found)
    return {one.field: one.message for one in found}


def worker(slots: int) -> Role:
    return Role("worker", 2, slots, ("torchrun", "train.py"))


def test_a_whole_document_is_taken_as_it_is_written():
    found = []
    assert (pod_template.parse(FULL, found), found) == (FULL, [])
    assert pod_template.parse({"node": {}, "locked": [], "pods": None}, found) == {} and not found


@pytest.mark.parametrize(
    ("document", "field", "words"),
    [
        ("text", "template", "must map parts to values; known are node, shm_per_gpu, storage, topology, egress, locked, pods"),
        ({"nodes": {"cpus": 1}}, "nodes", "is not known; known are node, shm_per_gpu, storage, topology, egress, locked, pods"),
        ({"node": {"memory": "512GB"}}, "node.memory", "is not understood; write 512Gi"),
        ({"node": {"cpus": float("nan")}}, "node.cpus", "is not understood; use a Kubernetes quantity such as 8 or 500m"),
        ({"node": {"cpus": -1}}, "node.cpus", "is not understood; use a Kubernetes quantity such as 8 or 500m"),
        ({"node": {"resource": "gpu"}}, "node.resource", "is no resource of a node; write it as nodes offer it, such as nvidia.com/gpu or nvidia.com/mig-1g.10gb"),
        ({"shm_per_gpu": "8 Gi"}, "shm_per_gpu", "is not understood; write 8Gi"),
        ({"locked": ["imgae"]}, "locked", "is not a field that a queue can keep; GET /job-fields lists them"),
        ({"pods": {"hostNetwork": True}}, "pods.hostNetwork", "is not known; known are service_account, scheduler, pull_secrets, affinity, security, host_network, init_containers, sidecars, volumes, mounts"),
        ({"pods": {"volumes": [{"name": "told", "emptyDir": {}}]}}, "pods.volumes.0.name", "is missing, no name, or one of Muster's own; choose another name"),
        ({"pods": {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "a", "emptyDir": {}}]}}, "pods.volumes.1.name", "appears twice; give each volume a name of its own"),
        ({"pods": {"mounts": [{"name": "told", "mountPath": "/data"}]}}, "pods.mounts.0.name", "is no volume of this template; it has none"),
        ({"pods": {"volumes": [{"name": "a", "emptyDir": {}}], "mounts": [{"name": "a", "mountPath": "/muster/told"}]}}, "pods.mounts.0.mountPath", "/muster/told belongs to the image; choose another place, such as /data"),
        ({"pods": {"sidecars": [{"name": "replica", "image": "a"}]}}, "pods.sidecars.0.name", "is missing, no name, or taken; give each container a name of its own"),
        ({"pods": {"sidecars": [{"name": "a", "image": "a", "volumeDevices": []}]}}, "pods.sidecars.0.volumeDevices", f"is not known; known are {', '.join(pod_template.CONTAINER)}"),
        ({"pods": {"sidecars": [{**SIDECAR, "volumeMounts": [{"name": "agent", "mountPath": "/a"}]}]}}, "pods.sidecars.0.volumeMounts.0.name", "is no volume of this template; it has none"),
        ({"pods": {"affinity": {"podAfinity": {}}}}, "pods.affinity.podAfinity", "is not known; known are nodeAffinity, podAffinity, podAntiAffinity"),
        ({"pods": {"security": {"windowsOptions": {}}}}, "pods.security.windowsOptions", f"is not known; known are {', '.join(pod_template.SECURITY)}"),
        ({"topology": {"requires": "rack"}}, "topology.requires", "is not known; known are require, prefer"),
        ({"topology": {"prefer": "a b"}}, "topology.prefer", "is not the key of a node's label; write it as nodes have it, such as topology.kubernetes.io/zone"),
        ({"pods": {"affinity": {"nodeAffinity": "x" * 70_000}}}, "template", "is longer than 64 KiB; shorten it"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_path_and_the_way_out(document, field, words):
    assert problems(document) == {field: words}


@pytest.mark.parametrize(
    ("pods", "path"),
    [
        ({"host_network": True}, "pods.host_network"),
        ({"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}}, f"pods.affinity.podAntiAffinity.{REQUIRED}"),
        ({"security": {"privileged": True}}, "pods.security.privileged"),
        ({"security": {"capabilities": {"add": ["IPC_LOCK"]}}}, "pods.security.capabilities.add"),
        ({"security": {"allowPrivilegeEscalation": True}}, "pods.security.allowPrivilegeEscalation"),
        ({"security": {"runAsNonRoot": False}}, "pods.security.runAsNonRoot"),
        ({"security": {"runAsUser": 0}}, "pods.security.runAsUser"),
        ({"security": {"runAsUser": 4000}}, "pods.security.runAsUser"),
        ({"security": {"runAsGroup": 4000}}, "pods.security.runAsGroup"),
        ({"security": {"fsGroup": 4000}}, "pods.security.fsGroup"),
        ({"security": {"fsGroupChangePolicy": "Always"}}, "pods.security.fsGroupChangePolicy"),
        ({"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "zone", "namespaceSelector": {}}]}}}, f"pods.affinity.podAffinity.{REQUIRED}"),
        ({"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "zone", "labelSelector": {"matchLabels": {"muster.dev/user": "eve"}}}]}}}, f"pods.affinity.podAffinity.{REQUIRED}"),
        ({"affinity": {"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "namespaces": ["theirs"]}}]}}}, f"pods.affinity.podAntiAffinity.{PREFERRED}"),
        ({"security": {"seccompProfile": {"type": "Unconfined"}}}, "pods.security.seccompProfile"),
        ({"security": {"procMount": "Unmasked"}}, "pods.security.procMount"),
        ({"security": {"sysctls": [{"name": "a", "value": "b"}]}}, "pods.security.sysctls"),
        ({"security": {"supplementalGroups": [999]}}, "pods.security.supplementalGroups"),
        ({"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}, "pods.volumes.0.hostPath"),
        ({"volumes": [{"name": "a", "nfs": {"server": "s", "path": "/"}}]}, "pods.volumes.0.nfs"),
        ({"volumes": [{"name": "a", "csi": {"driver": "d"}}]}, "pods.volumes.0.csi"),
        ({"sidecars": [{**SIDECAR, "securityContext": {"privileged": True}}]}, "pods.sidecars.0.securityContext.privileged"),
        ({"init_containers": [{**SIDECAR, "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]}, "pods.init_containers.0.securityContext.capabilities.add"),
        ({"sidecars": [{**SIDECAR, "ports": [{"containerPort": 1, "hostPort": 1}]}]}, "pods.sidecars.0.ports.0.hostPort"),
        ({"security": {"capabilities": {}}}, "pods.security.capabilities.drop"),
        ({"security": {"capabilities": {"drop": ["KILL"]}}}, "pods.security.capabilities.drop"),
        ({"security": {"seccompProfile": {}}}, "pods.security.seccompProfile"),
        ({"sidecars": [{**SIDECAR, "resources": {"limits": {"cpu": 1, "nvidia.com/gpu": 8}}}]}, "pods.sidecars.0.resources.limits.nvidia.com/gpu"),
        ({"init_containers": [{**SIDECAR, "resources": {"claims": [{"name": "gpu"}]}}]}, "pods.init_containers.0.resources.claims"),
        ({"sidecars": [{**SIDECAR, "livenessProbe": {"httpGet": {"host": "169.254.169.254", "port": 80}}}]}, "pods.sidecars.0.livenessProbe.httpGet.host"),
        ({"sidecars": [{**SIDECAR, "lifecycle": {"postStart": {"tcpSocket": {"host": "127.0.0.1", "port": 10250}}}}]}, "pods.sidecars.0.lifecycle.postStart.tcpSocket.host"),
    ],
)  # fmt: skip
def test_what_gives_pods_more_of_their_node_is_found(pods, path):
    assert list(pod_rights.privileges({"pods": pods})) == [path]


@pytest.mark.parametrize("where", ["pod", "container"])
@pytest.mark.parametrize(
    ("security", "field", "words"),
    [
        ({"runAsNonRoot": None}, "runAsNonRoot", "must be true or false, without quotes"),
        ({"runAsNonRoot": "false"}, "runAsNonRoot", "must be true or false, without quotes"),
        ({"privileged": "true"}, "privileged", "must be true or false, without quotes"),
        ({"allowPrivilegeEscalation": None}, "allowPrivilegeEscalation", "must be true or false, without quotes"),
        ({"allowPrivilegeEscalation": 0}, "allowPrivilegeEscalation", "must be true or false, without quotes"),
        ({"runAsUser": None}, "runAsUser", "must be a whole number from 0 to 2147483647, without quotes"),
        ({"runAsUser": "0"}, "runAsUser", "must be a whole number from 0 to 2147483647, without quotes"),
        ({"runAsUser": 0.0}, "runAsUser", "must be a whole number from 0 to 2147483647, without quotes"),
        ({"runAsUser": False}, "runAsUser", "must be a whole number from 0 to 2147483647, without quotes"),
        ({"capabilities": None}, "capabilities", "must map names to values"),
        ({"capabilities": ["SYS_ADMIN"]}, "capabilities", "must map names to values"),
        ({"capabilities": {"Add": ["SYS_ADMIN"]}}, "capabilities.Add", "is not known; known are add, drop"),
        ({"capabilities": {"drop": "ALL"}}, "capabilities.drop", 'must be a list such as ["ALL"]'),
        ({"seccompProfile": None}, "seccompProfile", "must map names to values"),
        ({"Privileged": True}, "Privileged", "is not known; known are "),
    ],
)
def test_what_its_pods_may_do_is_written_without_doubt(where, security, field, words):
    pods = (
        {"security": security}
        if where == "pod"
        else {"sidecars": [{**SIDECAR, "volumeMounts": [], "securityContext": security}]}
    )
    path = "pods.security" if where == "pod" else "pods.sidecars.0.securityContext"
    assert problems({"pods": pods})[f"{path}.{field}"].startswith(words)


@pytest.mark.parametrize("odd", [["a"], {"a": "b"}, None, 1])
def test_names_of_an_odd_type_are_refused(odd):
    mounts = [{"name": odd, "mountPath": "/data"}]
    assert "pods.mounts.0.name" in problems({"pods": {"mounts": mounts}})
    assert "pods.sidecars.0.volumeMounts.0.name" in problems(
        {"pods": {"sidecars": [{**SIDECAR, "volumeMounts": mounts}]}}
    )
    for name in ("service_account", "scheduler"):
        assert f"pods.{name}" in problems({"pods": {name: odd}})


def test_a_container_s_privilege_depends_on_all_of_the_container_and_a_volume_s_on_where_it_is_mounted():
    disk = {"name": "disk", "hostPath": {"path": "/"}}
    first = {
        **SIDECAR,
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": "disk", "mountPath": "/host"}],
    }
    pods = {"sidecars": [first], "volumes": [disk]}
    found = pod_rights.privileges({"pods": pods})
    assert pod_rights.privileges({"pods": {**pods, "scheduler": "gang"}}) == found
    for other in (
        {**pods, "sidecars": [{**first, "image": "other:1"}]},
        {**pods, "mounts": [{"name": "disk", "mountPath": "/host"}]},
        {
            **pods,
            "sidecars": [first, {"name": "more", "image": "a", "volumeMounts": [{"name": "disk", "mountPath": "/a"}]}],
        },
    ):
        assert pod_rights.privileges({"pods": other}) != found


def test_an_amount_is_passed_on_as_kubernetes_writes_it():
    document = {"node": {"cpus": 96.0, "memory": " 512Gi "}, "shm_per_gpu": 1e16}
    layer = pod_template.layer(document, worker(8), gpus_per_node=8)
    assert (layer.limits["cpu"], layer.limits["memory"], layer.shm) == ("96", "512Gi", "76293945312Mi")


def test_an_ordinary_template_gives_nothing_more():
    usual = {"security": {"seccompProfile": {"type": "RuntimeDefault"}, "capabilities": {"drop": ["ALL"]}}}
    near = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "cache"}}}
    apart = {"podAntiAffinity": {REQUIRED: [], PREFERRED: [{"weight": 1}]}, "podAffinity": {REQUIRED: [near]}}
    assert pod_rights.privileges(FULL) == pod_rights.privileges({"pods": {**usual, "affinity": apart}}) == {}


@pytest.mark.parametrize(
    ("pods", "path", "kind", "name"),
    [
        ({"service_account": "train"}, "pods.service_account", "service_account", "train"),
        ({"pull_secrets": ["registry"]}, "pods.pull_secrets.0", "pull_secret", "registry"),
        ({"volumes": [{"name": "a", "secret": {"secretName": "s"}}]}, "pods.volumes.0.secret.secretName", "secret", "s"),
        ({"volumes": [{"name": "a", "configMap": {"name": "c"}}]}, "pods.volumes.0.configMap.name", "config_map", "c"),
        ({"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "p"}}]}, "pods.volumes.0.persistentVolumeClaim.claimName", "claim", "p"),
        ({"volumes": [{"name": "a", "projected": {"sources": [{"secret": {"name": "s"}}]}}]}, "pods.volumes.0.projected.sources.0.secret.name", "secret", "s"),
        ({"volumes": [{"name": "a", "projected": {"sources": [{"configMap": {"name": "c"}}]}}]}, "pods.volumes.0.projected.sources.0.configMap.name", "config_map", "c"),
        ({"volumes": [{"name": "a", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]}, "pods.volumes.0.projected.sources.0.serviceAccountToken", "token", "serviceAccountToken"),
        ({"sidecars": [{**SIDECAR, "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}]}, "pods.sidecars.0.env.0.secretKeyRef.name", "secret", "s"),
        ({"init_containers": [{**SIDECAR, "envFrom": [{"configMapRef": {"name": "c"}}]}]}, "pods.init_containers.0.envFrom.0.configMapRef.name", "config_map", "c"),
        ({"init_containers": [{**SIDECAR, "envFrom": [{"secretRef": {"name": "s"}}]}]}, "pods.init_containers.0.envFrom.0.secretRef.name", "secret", "s"),
    ],
)  # fmt: skip
def test_every_object_that_it_names_is_found(pods, path, kind, name):
    assert pod_rights.named({"pods": pods}) == [pod_rights.Named(path, kind, name)]


@pytest.mark.parametrize(
    ("slots", "cpu", "memory", "shm"),
    [
        (8, "96", "512Gi", "64Gi"),
        (4, "48", "256Gi", "32Gi"),
        (3, "36", "192Gi", "24Gi"),
        (1, "12", "64Gi", "8Gi"),
    ],
)
def test_a_replica_on_a_part_of_a_node_gets_that_part(slots, cpu, memory, shm):
    layer = pod_template.layer(FULL, worker(slots), gpus_per_node=8)
    assert layer.limits["cpu"] == layer.requests["cpu"] == cpu
    assert (layer.limits["memory"], layer.shm, layer.device) == (memory, shm, "nvidia.com/gpu")


def test_a_head_without_gpus_and_a_queue_without_nodes_get_no_part():
    assert pod_template.layer(FULL, worker(0), gpus_per_node=8).needs == {}
    assert pod_template.layer(FULL, worker(4), gpus_per_node=0).needs == {}


def test_a_job_s_own_amounts_come_before_the_part_of_a_node():
    spec = parse({"command": "torchrun train.py", "nproc_per_node": 4, "memory": "8Gi"})
    (role,) = frameworks.roles(spec, below=lambda role: pod_template.layer(FULL, role, gpus_per_node=8))
    assert role.shape.limits == {"cpu": "48", "memory": "8Gi"}
    assert merge(of_resources(cpu="1"), role.shape).limits["cpu"] == "48"


def test_locked_fields_are_refused_everywhere_but_at_the_queue_s_own_value():
    sent = {
        "image": "mine:1",
        "memory": "8Gi",
        "tolerations": ["gpu"],
        "roles": {"head": {"image": "x", "cpu": "1"}},
        "head_cpu": 2,
    }
    found = pod_template.refuse_locked(FULL, sent, {"tolerations": ["gpu"]}, "research")
    assert [(one.field, one.message) for one in found] == [
        ("image", "is set by queue research for all of its jobs; remove it"),
        ("roles.head.image", "is set by queue research for all of its jobs; remove it"),
    ]
    found = pod_template.refuse_locked({"locked": ["cpu"]}, sent, {}, "research")
    assert [one.field for one in found] == ["head_cpu", "roles.head.cpu"], "a framework's own field says the same"
