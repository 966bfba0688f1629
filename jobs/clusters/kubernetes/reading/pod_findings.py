"""What two pods of a check say of a cluster: whether pods start, resolve names, reach the control plane and each other, and what their image holds. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from jobs.clusters import Inspected
from jobs.core.verdict import NO_PLACE

from ..api.objects import get, text, whole, words
from ..build.probe import API_SERVER, PORT
from ..build.site import Site
from .findings import MUSTER, PLATFORM

REFUSED = 401  # what the control plane answers to an agent without a token, as problem details
PROBLEM = "application/problem+json"
MOVED = (301, 302, 307, 308)
# The oldest driver for each major release of CUDA: NVIDIA, CUDA Compatibility, "minor version compatibility".
DRIVERS = {11: 450, 12: 525, 13: 580}
USES = {"torch": "torchrun", "ray": "ray", "torchmonarch": "monarch"}  # which frameworks need a distribution
NAMES = {"torchmonarch": "Monarch (torchmonarch)"}
IMAGE = "IMAGE and PULL_SECRETS of the cluster, or image in the queue's template"
PLACE = "NODE_SELECTOR and TOLERATIONS of the cluster, or those of the queue's template"
SYMPTOMS = ("cannot be pulled", "is no name of an image", "does not exist")


@dataclass(frozen=True)
class PodSaid:
    """A pod of a check. `answer`: what it printed; without one `problem` says why, in words."""

    node: str = ""
    address: str = ""
    answer: Mapping[str, Any] | None = None
    problem: str = ""
    is_refused: bool = False  # the cluster did not take it


def of_pods(first: PodSaid, second: PodSaid | None, *, site: Site, image: str) -> list[Inspected]:
    """Return a line for each thing that the pods looked at; one alone, where the first does not start."""
    if first.answer is None:
        return [_of_start(first, site=site, image=image)]
    where = f" on node {first.node}" if first.node else ""
    found = [Inspected("pods", "ok", f"a pod of image {image} starts{where}")]
    found += _of_names(first.answer, site)
    found.append(_of_control(get(_plain(first.answer), "control"), site))
    found.append(_of_network(first, second, site))
    found += _of_image(first, image)
    return found


def _of_start(pod: PodSaid, *, site: Site, image: str) -> Inspected:
    if pod.is_refused:
        remedy = f"kubectl -n {site.namespace} get resourcequota,limitrange"
        return Inspected("pods", "wrong", f"the cluster takes no pod: {pod.problem}", remedy, PLATFORM)
    problem, remedy, who = pod.problem, f"kubectl -n {site.namespace} get events --sort-by=.lastTimestamp", PLATFORM
    if 'exec: "python3"' in problem or "python3: not found" in problem:
        problem, remedy, who = "it has no python3 on its PATH", "an image with Python 3.8 or later", MUSTER
    elif any(one in problem for one in SYMPTOMS):
        remedy, who = IMAGE, MUSTER
    elif problem.startswith(NO_PLACE):
        remedy, who = PLACE, MUSTER
    return Inspected("pods", "wrong", f"a pod of image {image} gives no answer: {problem}", remedy, who)


def _of_names(answer: Mapping[str, Any], site: Site) -> Iterator[Inspected]:
    asked = get(_plain(answer), "names")
    asked = asked if isinstance(asked, dict) else {}
    wrong = {name: words(get(one, "words")) for name, one in asked.items() if get(one, "problem")}
    if good := [words(name) for name in asked if name not in wrong]:
        yield Inspected("names", "ok", f"a pod resolves {' and '.join(good)}")
    for name, why in wrong.items():
        if name == API_SERVER:
            said = f"a pod cannot resolve {name} ({why}): replicas find each other by such names"
            remedy, who = "kubectl -n kube-system get pods -l k8s-app=kube-dns", PLATFORM
        else:
            said, who = f"a pod cannot resolve {words(name)}, the control plane's host ({why})", MUSTER
            remedy = "CONTROL_URL of the cluster with a name that its DNS knows, or with an address"
        yield Inspected("names", _doubtful(site), said, remedy, who)


def _of_control(said: Any, site: Site) -> Inspected:
    url, status, kind = site.control_url, whole(get(said, "status")) or 0, text(get(said, "problem"))
    if not kind and status == REFUSED and get(said, "type") == PROBLEM:
        how = " by TLS, whose certificate it trusts," if url.startswith("https:") else ""
        return Inspected("control plane", "ok", f"a pod reaches it at {url}{how} in {_seconds(said)}")
    why = words(get(said, "words"))
    if not kind:
        return _of_status(status, site)
    setting = "CONTROL_URL of the cluster"
    found: dict[str, tuple[str, str, str]] = {
        "name": (f"a pod cannot resolve the host of {url}: {why}", f"{setting}, or the cluster's DNS", MUSTER),
        "certificate": (f"a pod does not trust the certificate of {url}: {why}", "CONTROL_CA of the cluster", MUSTER),
        "tls": (f"a pod finds no TLS at {url}: {why}", f"{setting}, with http: or another port", MUSTER),
        "refused": (f"nothing answers a pod at {url}: {why}", setting, MUSTER),
    }
    if kind in found:
        return Inspected("control plane", "wrong", *found[kind])
    remedy = f"kubectl -n {site.namespace} get networkpolicies; firewalls between its nodes and {urlsplit(url).netloc}"
    return Inspected(
        "control plane", _doubtful(site), f"a pod gets no answer from {url}: {why}{_own(site)}", remedy, PLATFORM
    )


def _of_status(status: int, site: Site) -> Inspected:
    url, remedy = site.control_url, "CONTROL_URL of the cluster"
    if status == 400:  # Django's answer to a name of a host that it does not have
        remedy = f"MUSTER_ALLOWED_HOSTS with {urlsplit(url).hostname}"
    elif status in MOVED:
        remedy = "CONTROL_URL of the cluster, with the address to which it redirects"
    return Inspected("control plane", "wrong", f"{url} answers a pod with {status}, as no Muster does", remedy, MUSTER)


def _of_network(first: PodSaid, second: PodSaid | None, site: Site) -> Inspected:
    listening = get(_plain(first.answer), "port")
    if get(listening, "problem"):
        why = f"the first pod cannot listen on port {PORT}: {words(get(listening, 'words'))}"
        return Inspected("network", "note", f"whether pods reach each other is not known: {why}")
    if second is None or second.answer is None:
        why = f"the second pod gives no answer: {second.problem}" if second else "there is no second pod"
        return Inspected("network", "note", f"whether pods reach each other is not known: {why}")
    peer, is_near = get(_plain(second.answer), "peer"), first.node == second.node
    if not get(peer, "problem"):
        where = f"on node {first.node}, where both are; between nodes it is not known" if is_near else ""
        where = where or f"on node {first.node} from node {second.node}"
        return Inspected("network", "ok", f"a pod reaches another one at port {PORT} {where}")
    said = (
        f"a pod on node {second.node} cannot reach one on node {first.node} at {first.address} port {PORT} "
        f"({words(get(peer, 'words'))}): the network plug-in or a NetworkPolicy cuts pods off, and ranks do not meet"
    )
    remedy = f"kubectl -n {site.namespace} get networkpolicies  # Muster's account may not list them"
    return Inspected("network", _doubtful(site), f"{said}{_own(site)}", remedy, PLATFORM)


def _of_image(first: PodSaid, image: str) -> Iterator[Inspected]:
    answer = _plain(first.answer)
    packages = get(answer, "packages") if isinstance(get(answer, "packages"), dict) else {}
    cuda, hip = (words(get(answer, "torch", name), most=20) for name in ("cuda", "hip"))
    builds = [f"CUDA {cuda}"] * bool(cuda) + [f"ROCm {hip}"] * bool(hip)
    held = [f"Python {words(get(answer, 'python'), most=20)}"]
    for name in USES:
        if number := words(packages.get(name), most=80):
            built = f" for {' and '.join(builds)}" if name == "torch" and builds else ""
            held.append(f"{NAMES.get(name, name)} {number}{built}")
    driver = words(get(answer, "driver"), most=20)
    has = f"node {first.node} has NVIDIA driver {driver}" if driver else f"node {first.node} shows no NVIDIA driver"
    yield Inspected("image", "ok", f"{image} holds {', '.join(held)}; {has}")
    if lacking := [name for name in USES if not packages.get(name)]:
        uses = " and ".join(USES[name] for name in lacking)
        said = f"{image} holds no {' and no '.join(lacking)}: jobs of {uses} that bring none do not run in it"
        remedy = "an image that holds them: in a queue's template, or muster submit --image"
        yield Inspected("image", "note", said, remedy, MUSTER)
    if packages.get("torch") and not builds:
        said = f"torch {words(packages['torch'], most=80)} of {image} is built without CUDA and ROCm: it uses no GPU"
        yield Inspected("image", "note", said, "an image with a build of torch for GPUs, where jobs use them", MUSTER)
    needed = DRIVERS.get(_major(cuda))
    if needed and driver and _major(driver) < needed:
        said = f"torch of {image} is built for CUDA {cuda}, which needs driver {needed} or later, and {has}"
        yield Inspected("image", "wrong", said, "a newer driver on the nodes, or an image for an older CUDA", PLATFORM)


def _plain(answer: Mapping[str, Any] | None) -> dict[str, Any]:
    return dict(answer or {})


def _doubtful(site: Site) -> str:
    """Return the state of what a policy of the namespace may forbid these pods, and an attempt's own policy allow its pods."""
    return "note" if site.network_policy else "wrong"


def _own(site: Site) -> str:
    return "; an attempt's own policy (NETWORK_POLICY) may allow it to its pods" if site.network_policy else ""


def _seconds(said: Any) -> str:
    seconds = get(said, "seconds")
    return f"{seconds:.2f} s" if isinstance(seconds, int | float) and 0 <= seconds < 1000 else "some time"


def _major(version: str) -> int:
    first = version.partition(".")[0]
    return int(first) if first.isascii() and first.isdecimal() and len(first) < 6 else 0
