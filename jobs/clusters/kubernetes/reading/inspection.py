"""Ask a cluster everything that Muster needs of it, in a bounded number of requests that change nothing."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping

from common import faultpoints
from common.errors import Unreachable
from jobs.clusters import Inspected

from ..api import reviews
from ..api.answers import ApiAnswer
from ..api.client import Api
from ..api.objects import get, items
from ..build.site import Site
from . import findings
from .findings import RIGHTS, Right, Wider

SECONDS = 4.0  # each request; most run beside each other
MOST_REVIEWS = 9  # requests about single rights, where the server does not list all
Classes = Callable[[Api], Awaitable[Mapping[str, str] | None]]
JWK_SET = "application/jwk-set+json"  # the server sends nothing else there


async def inspect(api: Api, site: Site, *, classes: Classes) -> list[Inspected]:
    """Return a line for each thing that was looked at. Raises Unreachable if the server does not answer at all.

    `classes` reads the storage classes, as `claims.classes` does.
    """
    version = await _get(api, "version")
    if not version.is_good:
        words = f"answers {version.status}: {version.words}"
        return [Inspected("server", "wrong", words, "the kubeconfig and its credentials", findings.MUSTER)]
    found = [findings.of_version(version.body)]
    lacking, groups, nodes, known, wider = await asyncio.gather(
        _lacking(api, site),
        _get(api, "apis"),
        _get(api, "api/v1/nodes", resourceVersion="0"),
        _known(classes(api)),
        _wider(api),
    )
    found += findings.of_rights(lacking, site)
    found.append(findings.of_wider(wider))
    if nodes.is_good:
        found += findings.of_nodes(items(nodes.body.get("items")), site)
    found.append(findings.of_storage(known))
    if groups.is_good:
        operators = findings.operators(groups.body)
        found += findings.of_operators(operators, await _kinds(api, findings.to_read(operators)))
    return found


async def rights(api: Api, site: Site) -> list[Inspected]:
    """Return a line for each right that the account lacks in the site's namespace. Raises Unreachable."""
    theirs = {right: verbs for right, verbs in (await _lacking(api, site)).items() if not right.is_of_cluster}
    return list(findings.of_rights(theirs, site))


async def _kinds(api: Api, versions: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the kinds that the server serves of each group in this version, as far as it says so."""
    answers = await asyncio.gather(*(_get(api, f"apis/{name}/{version}") for name, version in versions.items()))
    return {name: findings.kinds(one.body) for name, one in zip(versions, answers, strict=True) if one.is_good}


async def _lacking(api: Api, site: Site) -> dict[Right, tuple[str, ...]]:
    """Return the verbs that the account lacks, by right."""
    answer = await reviews.post(api, "selfsubjectrulesreviews", {"namespace": site.namespace}, seconds=SECONDS)
    rules = items(get(dict(answer.body), "status", "resourceRules")) if answer.is_good else []
    is_whole = answer.is_good and not get(dict(answer.body), "status", "incomplete")
    found = {right: verbs for right in RIGHTS if (verbs := findings.missing(rules, right))}
    if is_whole:
        return found
    # A webhook that authorises does not list what it allows: each of these is asked about by itself.
    single = [(right, verb) for right, verbs in found.items() for verb in verbs][:MOST_REVIEWS]
    allowed = await asyncio.gather(*(_may(api, site, right, verb) for right, verb in single))
    denied = {pair for pair, may in zip(single, allowed, strict=True) if not may}
    left = {right: tuple(verb for verb in verbs if (right, verb) in denied) for right, verbs in found.items()}
    return {right: verbs for right, verbs in left.items() if verbs}


async def _may(api: Api, site: Site, right: Right, verb: str) -> bool:
    resource, _, sub = right.resource.partition("/")
    where = "" if right.is_of_cluster else site.namespace
    return await reviews.may(api, verb, resource, group=right.group, subresource=sub, namespace=where, seconds=SECONDS)


async def _wider(api: Api) -> dict[Wider, bool]:
    """Return which rights outside of Muster's namespaces the account has."""
    asked = [reviews.may(api, one.verb, one.resource, seconds=SECONDS) for one in findings.WIDER]
    return dict(zip(findings.WIDER, await asyncio.gather(*asked), strict=True))


async def _known(asked: Awaitable[Mapping[str, str] | None]) -> Mapping[str, str] | None:
    try:
        return await asked
    except Unreachable:
        return None


async def _get(api: Api, path: str, **params: str) -> ApiAnswer:
    with faultpoints.around("kube.inspect"):
        return await api.call("GET", path, params=params, seconds=SECONDS)


async def identity(api: Api) -> str:
    """Return a digest of the keys that sign the cluster's tokens; empty where the account may not read them."""
    with faultpoints.around("kube.inspect"):
        answer = await api.call("GET", "openid/v1/jwks", accept=JWK_SET, seconds=SECONDS)
    keys = sorted(f"{get(one, 'kid')} {get(one, 'n')} {get(one, 'x')}" for one in items(get(dict(answer.body), "keys")))
    return hashlib.sha256("\n".join(keys).encode()).hexdigest() if answer.is_good and keys else ""
