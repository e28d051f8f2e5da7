"""Keeps the certificate: made, renewed, served, and trusted by the webhook configurations.

    Secret --watch--> rotation.step --> Secret            (REPLACE, STAGE, SWITCH; by resourceVersion: one replica wins)
                  --> SSL context of the port             (new connections get the new certificate)
    configurations --watch--> caBundle of the Secret put in where it differs

Where somebody else makes the certificate, only the middle line happens. What must stay true: the key leaves this process
for the Secret alone; a configuration that somebody applied anew has its caBundle back within a second.
"""

import asyncio
import base64
import contextlib
import datetime
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from api import errors
from kube import apiserver, informer
from webhook import certificates, rotation

_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
_KINDS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_LOOK_AGAIN_S = 10.0
_PAUSE_S = 1.0
_log = structlog.get_logger("keeper")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Secret:
    resource_version: str
    data: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Configuration:
    resource_version: str
    webhooks: tuple[dict[str, Any], ...]

    def trusts(self, bundle: str) -> bool:
        return all(hook["clientConfig"].get("caBundle") == bundle for hook in self.webhooks)


class Keeper:
    """`own`: the certificate is ours to make and to have trusted."""

    def __init__(
        self,
        api: apiserver.APIServer,
        namespace: str,
        service: str,
        secret: str,
        configuration: str,
        clock: Callable[[], datetime.datetime],
        *,
        own: bool = True,
    ) -> None:
        self._api = api
        self._hosts = (f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local")
        self._place = f"/api/v1/namespaces/{namespace}/secrets"
        self._secret_name, self._configuration = secret, configuration
        self._clock, self._own = clock, own
        self._secret = informer.Informer(api, self._place, project=_secret, field_selector=f"metadata.name={secret}")
        self._configurations = {
            kind: informer.Informer(
                api,
                f"{_CONFIGURATIONS}/{kind}",
                project=_configuration_,
                field_selector=f"metadata.name={configuration}",
            )
            for kind in (_KINDS if own else ())
        }
        self._informers: tuple[informer.Informer[Any], ...] = (self._secret, *self._configurations.values())
        self._news = asyncio.Event()
        self._served = ""
        self._trusted_since: datetime.datetime | None = None
        self._bundle = ""
        """What `_trusted_since` is said of."""
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2

    def missing(self) -> str:
        """What keeps the port from being served, for the readiness probe."""
        return "" if self._served else f"no certificate yet in Secret {self._secret_name}"

    async def run(self) -> None:
        """Works until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for kept in self._informers:
                group.create_task(kept.run(), name="watch")
                group.create_task(self._note_changes(kept), name="note")
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_AGAIN_S):  # time passes too, and certificates age by it
                        await self._news.wait()
                self._news.clear()
                try:
                    await self._turn()
                except errors.Conflict as error:
                    _log.info("overtaken", error=str(error))
                except errors.ElasticGPUError as error:
                    _log.warning("failed", error=str(error))
                    await asyncio.sleep(_PAUSE_S)

    async def _turn(self) -> None:
        if not all(kept.synced.is_set() for kept in self._informers):
            return
        held = next(iter(self._secret.objects.values()), None)
        if held is None:
            raise errors.NotReady(f"Secret {self._secret_name} does not exist; the chart makes it, empty")
        await self._serve(held)
        if not self._own:
            return
        bundle = held.data.get("ca.crt", "")
        if bundle:
            await self._have_trusted(base64.b64encode(bundle.encode()).decode())
        await self._perform(self._next(held), held)

    async def _serve(self, held: _Secret) -> None:
        certificate, key = held.data.get("tls.crt", ""), held.data.get("tls.key", "")
        if not (certificate and key) or certificate + key == self._served:
            return
        try:
            await asyncio.to_thread(certificates.load, self.context, certificate, key)
        except errors.Invalid as error:  # the old one is served on; where the Secret is ours, it is written anew
            _log.warning("not served", secret=self._secret_name, error=str(error))
            return
        self._served = certificate + key
        _log.info("serving a new certificate", until=str(certificates.validity(certificate).end))

    def _next(self, held: _Secret) -> rotation.Step:
        try:
            found = certificates.validity(held.data.get("tls.crt", ""))
        except errors.Invalid:
            found = None
        served = held.data.get("tls.crt", "") + held.data.get("tls.key", "") == self._served
        usable = found if served and held.data.get("ca.crt") else None
        state = rotation.State(
            start=usable.start if usable else None,
            end=usable.end if usable else None,
            staged="next.crt" in held.data and "next.key" in held.data,
            trusted_since=self._trusted_since,
        )
        return rotation.step(state, self._clock())

    async def _perform(self, step: rotation.Step, held: _Secret) -> None:
        match step:
            case rotation.Step.KEEP:
                return
            case rotation.Step.SWITCH:
                data = held.data
                await self._write(
                    held, {"tls.crt": data["next.crt"], "tls.key": data["next.key"]}, ("next.crt", "next.key")
                )
            case rotation.Step.REPLACE | rotation.Step.STAGE:
                now = self._clock()
                made = certificates.issue(self._hosts, now, rotation.LIFETIME)
                bundle = "".join((made.authority, *certificates.still_valid(held.data.get("ca.crt", ""), now)[:1]))
                names = ("next.crt", "next.key") if step is rotation.Step.STAGE else ("tls.crt", "tls.key")
                gone = () if step is rotation.Step.STAGE else ("next.crt", "next.key")
                pair = dict(zip(names, (made.certificate, made.key), strict=True))
                await self._write(held, {"ca.crt": bundle, **pair}, gone)
        _log.info("certificate", step=step.value)

    async def _write(self, held: _Secret, data: Mapping[str, str], gone: Iterable[str]) -> None:
        encoded = {name: base64.b64encode(text.encode()).decode() for name, text in data.items()}
        body = {
            "metadata": {"resourceVersion": held.resource_version},
            "data": encoded | {name: None for name in gone if name in held.data},
        }
        stored = await self._api.patch(f"{self._place}/{self._secret_name}", body)
        if stored is not None:
            self._secret.adopt(stored)
            self._news.set()

    async def _have_trusted(self, bundle: str) -> None:
        """Puts the bundle where it is missing; notes since when it is everywhere."""
        if bundle != self._bundle:  # before any write: one that another replica overtakes ends this turn
            self._bundle, self._trusted_since = bundle, None
        complete = True
        for kind, kept in self._configurations.items():
            found = next(iter(kept.objects.values()), None)
            if found is None or found.trusts(bundle):
                continue
            complete = False
            hooks = [{**hook, "clientConfig": {**hook["clientConfig"], "caBundle": bundle}} for hook in found.webhooks]
            body = {"metadata": {"resourceVersion": found.resource_version}, "webhooks": hooks}
            stored = await self._api.patch(f"{_CONFIGURATIONS}/{kind}/{self._configuration}", body)
            if stored is not None:
                kept.adopt(stored)
                self._news.set()
        self._trusted_since = (self._trusted_since or self._clock()) if complete else None

    async def _note_changes(self, kept: informer.Informer[Any]) -> None:
        seen = 0
        while True:
            seen = await kept.changed(seen)
            self._news.set()


def _secret(data: dict[str, Any]) -> _Secret:
    held = {name: base64.b64decode(text).decode(errors="replace") for name, text in (data.get("data") or {}).items()}
    return _Secret(resource_version=data["metadata"]["resourceVersion"], data=held)


def _configuration_(data: dict[str, Any]) -> _Configuration:
    return _Configuration(
        resource_version=data["metadata"]["resourceVersion"], webhooks=tuple(data.get("webhooks") or ())
    )
