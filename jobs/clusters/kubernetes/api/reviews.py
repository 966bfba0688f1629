"""Ask the API server what our own account may do. Such a request needs no right, and logs no refusal."""

from common import faultpoints

from .answers import ApiAnswer
from .client import Api
from .objects import get

GROUP = "apis/authorization.k8s.io/v1"
SECONDS = 4.0


async def may(
    api: Api, verb: str, resource: str, *, group: str = "", namespace: str = "", subresource: str = "",
    seconds: float = SECONDS,
) -> bool:  # fmt: skip
    """Whether the account has a right, in a namespace or (empty) in all. False also where the server does not say.

    Raises Unreachable without an answer.
    """
    asked = {"group": group, "resource": resource, "subresource": subresource, "verb": verb, "namespace": namespace}
    attributes = {key: value for key, value in asked.items() if value}
    answer = await post(api, "selfsubjectaccessreviews", {"resourceAttributes": attributes}, seconds=seconds)
    return bool(answer.is_good and get(dict(answer.body), "status", "allowed"))


async def post(api: Api, kind: str, spec: dict[str, object], *, seconds: float = SECONDS) -> ApiAnswer:
    with faultpoints.around("kube.review"):
        return await api.call("POST", f"{GROUP}/{kind}", body={"spec": spec}, seconds=seconds)
