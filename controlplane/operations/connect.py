"""bin/connect: create a kubeconfig for Muster's account in a cluster, and the setting that names it.

Runs with the permissions of the person who starts it, using the kubeconfig that `kubectl` uses: it requests a token for
the account that deploy/account.yaml or the chart created, and changes nothing else.
"""

import argparse
import base64
import contextlib
import copy
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from kubernetes import client, config

DAY_SECONDS = 86400
ACCOUNT = "muster"  # also its role and its binding
NAMESPACE = "muster-jobs"
EARLIER = (
    "{namespace}/muster is the account of an earlier release: pods of jobs could run with it. To use the one in a namespace"
    " of its own, apply deploy/account.yaml of this release and run bin/connect again"
)
BACKEND = "jobs.clusters.kubernetes.KubernetesCluster"


class CanNotConnect(Exception):
    """The reason as a message, with how to fix it."""


def main(arguments: Sequence[str]) -> int:
    options = _parse(arguments)
    try:
        print(json.dumps({options.name: connect(options)}, indent=1))
    except CanNotConnect as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def connect(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the cluster's entry for MUSTER_CLUSTERS, after writing the kubeconfig."""
    api, configuration = _api(arguments.context)
    token, until = _token_for(api, arguments.namespace, days=arguments.days)
    path = Path(arguments.kubeconfig or f"{arguments.name}.kubeconfig").absolute()
    write(path, kubeconfig(_cluster(configuration), token=token, namespace=arguments.namespace))
    print(f"{path} is valid until {until}; run bin/connect again to renew it", file=sys.stderr)
    options = {
        "KUBECONFIG": str(path),
        "NAMESPACE": arguments.namespace,
        "IMAGE": arguments.image,
        "CONTROL_URL": arguments.control_url,
    }
    return {"BACKEND": BACKEND, "OPTIONS": options}


def kubeconfig(cluster: Mapping[str, Any], *, token: str, namespace: str) -> dict[str, Any]:
    """Return the account's kubeconfig: the same server, and nothing of the caller's own."""
    context = {"cluster": "cluster", "user": ACCOUNT, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": dict(cluster)}],
        "users": [{"name": ACCOUNT, "user": {"token": token}}],
        "contexts": [{"name": "muster", "context": context}],
        "current-context": "muster",
    }


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write the file atomically, readable by its owner only: a running Muster may be reading it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(content, file, indent=1)
    draft.replace(path)


def _api(context: str) -> tuple[Any, Any]:
    configuration = client.Configuration(proxy="")  # not the environment's: what is set after this is the kubeconfig's
    try:
        config.load_kube_config(  # type: ignore[no-untyped-call]  # the package has no types here
            context=context or None, client_configuration=configuration, persist_config=False
        )
    except (config.ConfigException, OSError) as error:
        raise CanNotConnect(f"no kubeconfig can be used: {error}; set KUBECONFIG, or --context") from error
    asking = copy.deepcopy(configuration)
    asking.proxy = asking.proxy or client.Configuration(host=asking.host).proxy
    asking.proxy_headers = _proxy_headers(asking.proxy or "")
    return client.ApiClient(asking), configuration


def _proxy_headers(proxy: str) -> dict[str, str] | None:
    """Return the login in a proxy's URL as a header: the package passes the URL to urllib3, which ignores it."""
    parts = urlsplit(proxy)
    if parts.username is None:
        return None
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}


def _token_for(api: Any, namespace: str, *, days: int) -> tuple[str, str]:
    """Return a token of the account that may work in the namespace, and until when it is valid."""
    for place in _account_namespaces(api, namespace):
        if found := _token(api, place, days=days):
            if place == namespace:
                print(EARLIER.format(namespace=namespace), file=sys.stderr)
            return found
    raise CanNotConnect(_no_account(namespace))


def _account_namespaces(api: Any, namespace: str) -> list[str]:
    """Return where accounts are that may work in the namespace. The last one is the namespace itself, if it is there."""
    with _told(f"the cluster does not show RoleBinding {ACCOUNT} of namespace {namespace}, which names the account"):
        binding = _found(client.RbacAuthorizationV1Api(api).read_namespaced_role_binding, ACCOUNT, namespace)
    subjects = (binding and binding.subjects) or []
    places = {one.namespace for one in subjects if (one.kind, one.name) == ("ServiceAccount", ACCOUNT)}
    return sorted(places, key=lambda place: (place == namespace, place))


def _token(api: Any, place: str, *, days: int) -> tuple[str, str] | None:
    """Return a token of the account there and until when it is valid, or None if there is no such account."""
    body = {"spec": {"expirationSeconds": days * DAY_SECONDS}}
    with _told(f"the cluster does not issue a token for {place}/{ACCOUNT}"):
        made = _found(client.CoreV1Api(api).create_namespaced_service_account_token, ACCOUNT, place, body)
    return made and (str(made.status.token), f"{made.status.expiration_timestamp:%Y-%m-%d %H:%M} UTC")


def _found(ask: Callable[..., Any], *arguments: Any) -> Any:
    """Return the answer, or None if the object that it asks for does not exist."""
    try:
        return ask(*arguments)
    except client.ApiException as error:
        if error.status == 404:
            return None
        raise


@contextlib.contextmanager
def _told(refusal: str) -> Iterator[None]:
    """Raise CanNotConnect for any error of a request."""
    try:
        yield
    except client.ApiException as error:
        raise CanNotConnect(f"{refusal}: {error.reason}") from error
    except Exception as error:  # urllib3's own errors, if the server is unreachable
        raise CanNotConnect(f"the cluster does not answer: {error}") from error


def _no_account(namespace: str) -> str:
    other = "" if namespace == NAMESPACE else f" with {NAMESPACE} replaced by {namespace} throughout"
    return f"there is no account {ACCOUNT} that may work in namespace {namespace}: kubectl apply -f deploy/account.yaml{other}"


def _cluster(configuration: Any) -> dict[str, Any]:
    """Return how the server is reached, with its CA embedded: the file may be moved to another machine."""
    found: dict[str, Any] = {"server": configuration.host}
    if configuration.ssl_ca_cert:
        found["certificate-authority-data"] = base64.b64encode(Path(configuration.ssl_ca_cert).read_bytes()).decode()
    if not configuration.verify_ssl:
        found["insecure-skip-tls-verify"] = True
    if configuration.tls_server_name:
        found["tls-server-name"] = configuration.tls_server_name
    if configuration.proxy:
        found["proxy-url"] = configuration.proxy
    return found


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("bin/connect", description="Print a cluster's entry of MUSTER_CLUSTERS.")
    parser.add_argument("name", help="the name that queues use for this cluster")
    parser.add_argument("--image", required=True, help="the pods' image, with python3 and what jobs import")
    parser.add_argument("--control-url", required=True, help="where pods reach Muster")
    parser.add_argument(
        "--namespace",
        default=NAMESPACE,
        help=f"the namespace of jobs in deploy/account.yaml (default: {NAMESPACE})",
    )
    parser.add_argument("--context", default="", help="the context of your kubeconfig (default: the current one)")
    parser.add_argument("--kubeconfig", default="", help="where to write Muster's (default: NAME.kubeconfig here)")
    parser.add_argument("--days", type=int, default=365, help="how many days its token is valid (default: 365)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
