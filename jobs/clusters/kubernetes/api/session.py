"""How one API server is reached: session, TLS, proxy and credentials, all from the official package.

The package reads the kubeconfig, builds the TLS context and the pooled session and keeps the credentials; ours are the
session's limits, and messages that name what to change. Requests are sent by client.py, without its generated client.
"""

import errno
import ipaddress
import socket
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from kubernetes.aio import config as kubeconfigs
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.client.rest import should_bypass_proxies

from common.errors import Unreachable
from common.http.public_addresses import Network, is_in, is_public, unwrapped

from ..build.options import ApiAccess

CONNECTIONS = 128
BUFFER_BYTES = 1 << 20  # parsed by aiohttp and not yet read
KEPT_SECONDS = 60.0  # an idle connection
TOKEN = "BearerToken"  # noqa: S105 - the key under which the package keeps it
NETWORKS = "MUSTER_CLUSTER_NETWORKS"
WRONG_NAME = frozenset({62, 64})  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH (OpenSSL)


async def open_session(access: ApiAccess) -> "Session":
    """Read the credentials and prepare a session. Raises Unreachable if either cannot be used."""
    configuration = await _configuration(access)
    if access.networks is None:
        shown, resolver = _use_proxy(configuration), None
    else:
        configuration.proxy, shown, resolver = None, "", Guarded(access.networks)
        if words := refusal(urlsplit(configuration.host).hostname or "", access.networks):
            raise Unreachable(f"the API server's address {words}")
    try:
        return Session(configuration, proxy=shown, resolver=resolver)
    except OSError as error:  # ssl.SSLError is one
        raise Unreachable(f"the cluster's certificates cannot be used: {_text(error)}") from error


class Session(RESTClientObject):
    """The package's transport, of which only the pooled session is used: its `request` encodes and retries by itself."""

    def __init__(self, configuration: Configuration, *, proxy: str, resolver: AbstractResolver | None = None):
        self._resolver = resolver
        configuration.connection_pool_maxsize = CONNECTIONS
        # Bodies are large and mostly sent once: compression would cost more than it saves on a cluster's own network.
        configuration.client_session_kwargs = {
            "base_url": configuration.host.rstrip("/") + "/", "cookie_jar": aiohttp.DummyCookieJar(),
            "read_bufsize": BUFFER_BYTES, "skip_auto_headers": ["Accept-Encoding"], "proxy": configuration.proxy,
            # The environment was read once (_use_proxy). With trust_env aiohttp reads it, and ~/.netrc, for each request
            # in a thread, and refuses to send our token to a host that is in ~/.netrc.
            "trust_env": False,
        }  # fmt: skip
        super().__init__(configuration)
        self.server_name: str | None = configuration.tls_server_name or None
        self.http = self.pool_manager = self._create_pool_manager()
        self.maxsize = 0  # no bound: watches of each namespace in use hold connections, and no call may wait for them
        self.watches = self._create_pool_manager()
        self._shown_proxy = proxy

    def _create_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(
            limit=self.maxsize, ssl=self.ssl_context, keepalive_timeout=KEPT_SECONDS, resolver=self._resolver
        )

    async def close(self) -> None:
        await self.watches.close()
        await super().close()

    async def credentials(self) -> dict[str, str]:
        """Return the headers that say who asks, if a token does. A service account's is re-read once a minute."""
        try:
            found = await self.configuration.get_api_key_with_prefix(TOKEN)
        except Exception as error:  # the file is missing or empty
            raise Unreachable(f"the cluster's credentials cannot be read: {_text(error)}") from error
        token = (found or "").strip()  # files of tokens end with a newline, which no header may contain
        return {"Authorization": token} if token else {}

    def words(self, error: BaseException) -> str:
        """Describe an error of a request; the proxy is named without its password."""
        if not self._shown_proxy:
            return self._words(error)
        match error:
            case aiohttp.ClientProxyConnectionError() | aiohttp.ClientConnectorDNSError():
                return f"the proxy {self._shown_proxy} cannot be reached: {error.strerror}"
            case aiohttp.ClientHttpProxyError():  # its own text has the password
                return f"the proxy {self._shown_proxy} refuses the connection: {error.status} {error.message}"
        return f"{self._words(error)}; through the proxy {self._shown_proxy}"

    def _words(self, error: BaseException) -> str:
        if not isinstance(error, aiohttp.ClientConnectorCertificateError):
            return _text(error)
        cause: Any = error.certificate_error
        why = getattr(cause, "verify_message", "") or _text(cause)
        is_named_otherwise = getattr(cause, "verify_code", 0) in WRONG_NAME
        hint = "; tls-server-name in the kubeconfig sets the name to expect" if is_named_otherwise else ""
        return f"the certificate of {error.host}:{error.port} is not accepted: {why}{hint}"


class Guarded(ThreadedResolver):
    """Looks names up, and passes on only addresses that may be called: also where the name has others by now."""

    def __init__(self, networks: tuple[Network, ...]):
        super().__init__()
        self._networks = networks

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await super().resolve(host, port, family)
        for one in found:
            if words := refusal(one["host"], self._networks):
                raise OSError(errno.EACCES, words)
        return found


def refusal(host: str, networks: tuple[Network, ...]) -> str:
    """Return why an address may not be called, else ""; a name is judged when it is looked up."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return ""
    if is_in(address, networks) or is_public(unwrapped(address)):
        return ""
    return f"{address} is not a public one; if a cluster may be there, add its network to {NETWORKS}"


async def _configuration(access: ApiAccess) -> Configuration:
    found = Configuration()
    try:
        if access.content is not None:
            await kubeconfigs.load_kube_config_from_dict(dict(access.content), client_configuration=found)  # type: ignore[no-untyped-call]
        elif access.kubeconfig:
            loader = await kubeconfigs.load_kube_config(  # type: ignore[no-untyped-call]  # the package has no types here
                config_file=access.kubeconfig, context=access.context or None, client_configuration=found,
                persist_config=False,
            )  # fmt: skip
            _need_credentials(found, loader)
        else:
            kubeconfigs.load_incluster_config(client_configuration=found)  # type: ignore[no-untyped-call]
    except Exception as error:  # exec plug-ins and YAML raise arbitrary exceptions
        where = "the service account of this pod"
        if access.content is not None or access.kubeconfig:
            where = f"kubeconfig {access.kubeconfig}" if access.kubeconfig else "its kubeconfig"
        raise Unreachable(f"{where} cannot be used: {_text(error)}") from error
    return found


def _need_credentials(configuration: Configuration, loader: Any) -> None:
    """Raise if the user has an exec plug-in or a token file and neither gave anything.

    The package logs the plug-in's error and goes on without credentials. As nobody we would be refused for good (403).
    """
    user = getattr(loader, "_user", None)
    if user is None or configuration.api_key or configuration.cert_file:
        return
    if "exec" in user:
        raise Unreachable("its user's exec plug-in gave no credentials; the log has its error")
    if "tokenFile" in user:
        raise Unreachable("its user's tokenFile is empty")


def _use_proxy(configuration: Configuration) -> str:
    """Set the proxy as kubectl chooses it: `proxy-url`, else the environment's. Return it without its password."""
    proxy = configuration.proxy or _proxy_of_environment(configuration.host)
    if proxy and "://" not in proxy:
        proxy = f"http://{proxy}"
    configuration.proxy = proxy or None
    if not proxy:
        return ""
    try:
        parts = urlsplit(proxy)
        is_address = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        raise Unreachable("the proxy's address is not valid; it must be like http://proxy.example:3128") from None
    # aiohttp has no SOCKS, and would judge the certificate of an HTTPS proxy by the cluster's authority.
    if not is_address or parts.scheme != "http":
        raise Unreachable(f"a proxy must be like http://proxy.example:3128; {parts.scheme}:// is not supported")
    return f"http://{parts.netloc.rpartition('@')[2]}"


def _proxy_of_environment(host: str) -> str:
    """Return what HTTPS_PROXY (HTTP_PROXY for http://) says, unless NO_PROXY has the host, or it is this machine."""
    parts, proxies = urlsplit(host), getproxies()
    if _is_this_machine(parts.hostname or "") or should_bypass_proxies(host, proxies.get("no", "")):
        return ""
    return proxies.get(parts.scheme, "")


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
