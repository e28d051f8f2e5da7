"""One open way to an API server: credentials, TLS and proxy of the `kubernetes` package over kept-alive connections.

The only importer of aiohttp as a client. The package finds the server and the credentials
(kubeconfig with exec plugins and proxies, or the mounted service account) and makes the TLS context; its models,
response wrappers and retries stay unused: they cost several times the call itself.

What must stay true: credentials that were replaced on disk are taken up without a restart, and nobody outside sees an
exception of aiohttp.
"""

import asyncio
import contextlib
import time
import urllib.parse
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import structlog
import yaml
import yarl

from api import errors
from kube import credentials

_log = structlog.get_logger(__name__)

_IDLE_S: Final = 90.0  # bookmarks come every minute: silence for longer means that nobody is there
_HEADERS_S: Final = 10.0
_KEEP_ALIVE_S: Final = 60.0  # API servers and load balancers keep idle connections longer
_RELOAD_EVERY_S: Final = 5.0
_UNAUTHORIZED: Final = 401
_BAD: Final = 400
_NO_LIMIT: Final = aiohttp.ClientTimeout(total=None)


class Unsent(errors.Unavailable):
    """No connection: the server has not seen the call."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Whatever the server said; `retry_after` is the header's text."""

    status: int
    data: bytes
    retry_after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    """A session with the credentials that were in force when it was opened."""

    http: aiohttp.ClientSession
    base: str
    options: dict[str, Any]
    settings: Any

    async def request(self, method: str, target: str, headers: dict[str, str], **more: Any) -> Any:
        """A response to enter. The token is asked for each time: the package reads the mounted file anew every minute."""
        if token := await self.settings.get_api_key_with_prefix("BearerToken", alias="authorization"):
            headers |= {"Authorization": token}
        return self.http.request(
            method, yarl.URL(self.base + target, encoded=True), headers=headers, **self.options, **more
        )


class Transport:
    """Bytes to and from one API server. Made by `opened`."""

    def __init__(self, kubeconfig: Path | None, user_agent: str, session: _Session) -> None:
        self._kubeconfig = kubeconfig
        self._headers = {"User-Agent": user_agent, "Accept": "application/json", "Accept-Encoding": "identity"}
        self._session = session
        self._reloaded_at = -_RELOAD_EVERY_S
        self._opening = asyncio.Lock()

    async def send(self, method: str, target: str, data: bytes | None, content: str) -> Answer:
        """One call, one answer of any status. No deadline of its own. Raises Unavailable, or Unsent below it."""
        headers = self._headers if data is None else self._headers | {"Content-Type": content}
        with _translated(method, target):
            session = self._session
            try:
                answer = await self._exchange(session, method, target, headers, data)
            except aiohttp.ClientConnectorCertificateError:
                if not await self._reload(session):
                    raise
            else:
                if answer.status != _UNAUTHORIZED or not await self._reload(session):
                    return answer
            return await self._exchange(self._session, method, target, headers, data)

    async def stream(self, target: str) -> AsyncGenerator[Answer, None]:
        """The parts of an endless answer as they come; the first is empty and says that it is open.

        Raises Unavailable also after a silence longer than bookmarks make.

        Close it when done (`contextlib.aclosing`).
        """
        session, limit = self._session, aiohttp.ClientTimeout(total=None, sock_read=_IDLE_S)
        with _translated("GET", target):
            async with contextlib.AsyncExitStack() as stack:
                async with asyncio.timeout(_HEADERS_S):
                    request = await session.request("GET", target, self._headers, timeout=limit)
                    response = await stack.enter_async_context(request)
                if response.status == _UNAUTHORIZED:
                    await self._reload(session)
                if response.status >= _BAD:
                    yield Answer(response.status, await response.read())
                    return
                yield Answer(response.status, b"")
                async for part in response.content.iter_any():
                    yield Answer(response.status, part)

    async def close(self) -> None:
        await self._session.http.close()

    @staticmethod
    async def _exchange(
        session: _Session, method: str, target: str, headers: dict[str, str], data: bytes | None
    ) -> Answer:
        async with await session.request(method, target, headers, data=data, timeout=_NO_LIMIT) as response:
            return Answer(response.status, await response.read(), response.headers.get("Retry-After", ""))

    async def _reload(self, refused: _Session) -> bool:
        """Reads the credentials again: token, certificate or CA may have been replaced. True: the call is worth a repeat."""
        async with self._opening:
            if self._session is not refused:
                return True
            if time.monotonic() - self._reloaded_at < _RELOAD_EVERY_S:
                return False
            self._reloaded_at = time.monotonic()
            self._session = await _open(self._kubeconfig)
            _log.info("credentials reloaded", server=self._session.base)
            await refused.http.close()
            return True


@contextlib.asynccontextmanager
async def opened(kubeconfig: Path | None, user_agent: str) -> AsyncIterator[Transport]:
    """The kubeconfig given, else the mounted service account, else $KUBECONFIG or ~/.kube/config. Makes no call.

    Raises Invalid where no credentials can be found.
    """
    transport = Transport(kubeconfig, user_agent, await _open(kubeconfig))
    try:
        yield transport
    finally:
        await transport.close()


async def _open(kubeconfig: Path | None) -> _Session:
    settings = credentials.Configuration()
    try:
        if kubeconfig is not None or not await asyncio.to_thread(_in_cluster, settings):
            where = None if kubeconfig is None else str(kubeconfig)
            await credentials.load_kube_config(where, client_configuration=settings, persist_config=False)
        made = await asyncio.to_thread(credentials.RESTClientObject, settings)
    except (credentials.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError) as error:
        raise errors.Invalid(
            f"no credentials for an API server in {kubeconfig or 'service account, $KUBECONFIG or ~/.kube/config'}: "
            f"{' '.join(str(error).split())}; give a kubeconfig that works with kubectl"
        ) from error
    base = settings.host.rstrip("/")
    options = {
        "server_hostname": settings.tls_server_name,
        "proxy": made.proxy or _environment_proxy(base),
        "proxy_headers": made.proxy_headers,
    }
    http = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=made.ssl_context, limit=0, keepalive_timeout=_KEEP_ALIVE_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,  # true costs two threads a call: the proxy is found once, above
    )
    used = {key: value for key, value in options.items() if value}
    return _Session(http=http, base=base, options=used, settings=settings)


def _in_cluster(settings: Any) -> bool:
    try:
        credentials.load_incluster_config(client_configuration=settings)
    except credentials.ConfigException:
        return False
    return True


def _environment_proxy(base: str) -> str | None:
    url = urllib.parse.urlsplit(base)
    if urllib.request.proxy_bypass(url.netloc):
        return None
    return urllib.request.getproxies().get(url.scheme)


@contextlib.contextmanager
def _translated(method: str, target: str) -> Iterator[None]:
    what = f"{method} {target.partition('?')[0]}"
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ClientConnectorCertificateError) as error:
        raise Unsent(f"{what}: cannot reach the API server: {error}; check its address and the network") from error
    except TimeoutError as error:
        raise errors.Unavailable(f"{what}: no word from the API server for too long; repeat it") from error
    except credentials.ConfigException as error:  # a token file that is empty for a moment, a plugin that fails
        raise Unsent(f"{what}: no credentials for the API server just now: {error}; they are read again") from error
    except (aiohttp.ClientError, OSError) as error:
        raise errors.Unavailable(f"{what}: the API server's answer was cut: {error!r}; repeat it") from error
