"""What was prepared, written to the claims' `status.devices` behind the kubelet's answer.

    prepared -> last wish per claim -> compared with what is stored -> one apply patch -> stored

Nobody waits for it: it fails no Prepare and delays none, so it lets a burst of calls pass first. One write at a time; a
claim prepared again meanwhile is written once, with the newest; one that cannot be written now is tried again, one that
never can is logged and left.
"""

import asyncio
import contextlib

import structlog

from api import errors, resource
from kube import apiserver, backoff, status
from kubeletplugin import claims, contract

_CALM_S = 0.25
_LATEST_S = 2.0
_FIRST_PAUSE_S = 2
_LONGEST_PAUSE_S = 15

log = structlog.get_logger()
Devices = tuple[contract.PreparedDevice, ...]


class Statuses:
    def __init__(self, api: apiserver.APIServer, driver_name: str, found: claims.Claims) -> None:
        self._api = api
        self._driver_name = driver_name
        self._claims = found
        self._wanted: dict[resource.ClaimUID, tuple[resource.Claim, Devices]] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def want(self, found: claims.Found, devices: Devices) -> None:
        """Devices without data are left out; nothing is written where the API server holds the same already."""
        told = tuple(device for device in devices if device.data)
        if told and not self._stored(found, told):
            self._wanted[found.claim.uid] = found.claim, told
            self._idle.clear()
            self._wake.set()

    def forget(self, uid: resource.ClaimUID) -> None:
        self._wanted.pop(uid, None)

    async def flush(self, timeout_s: float) -> None:
        """Waits until all is written, or the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            log.warning("device statuses left unwritten", claims=len(self._wanted))

    async def run(self) -> None:
        pauses = backoff.Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while True:
            await self._wake.wait()
            await self._calm()
            late = [error for uid in tuple(self._wanted) if (error := await self._turn(uid)) is not None]
            if not late:
                pauses.reset()
            if not self._wanted:
                self._idle.set()
            elif not self._wake.is_set():  # what is left was refused for now
                log.info("device statuses will be written later", claims=len(self._wanted), error=str(late[0]))
                asyncio.get_running_loop().call_later(pauses.next_s(), self._wake.set)

    async def _calm(self) -> None:
        """Waits until no claim has come for a moment: a write beside a Prepare would cost that one some milliseconds."""
        loop = asyncio.get_running_loop()
        latest = loop.time() + _LATEST_S
        with contextlib.suppress(TimeoutError):
            while self._wake.is_set() and loop.time() < latest:
                self._wake.clear()
                async with asyncio.timeout(_CALM_S):
                    await self._wake.wait()
        self._wake.clear()

    async def _turn(self, uid: resource.ClaimUID) -> Exception | None:
        """One write; the error of one that has to wait."""
        wish = self._wanted.get(uid)
        if wish is None:
            return None
        claim, devices = wish
        try:
            await self._write(claim, devices)
        except (errors.Unavailable, errors.NotReady, errors.Conflict) as error:
            return error
        except Exception as error:  # noqa: BLE001  whatever is wrong with this one, the others are written
            log.warning("device status cannot be written", claim=str(claim), uid=uid, error=repr(error))
        if self._wanted.get(uid) is wish:
            del self._wanted[uid]
        return None

    async def _write(self, claim: resource.Claim, devices: Devices) -> None:
        """One patch. Where it does not fit the claim any more, or the claim takes no apply, another on what is there now."""
        try:
            await self._apply(claim, devices)
        except errors.Conflict:
            found = await self._again(claim)
            if not self._stored(found, devices):
                await self._apply(found.claim, devices)
        except errors.Invalid:
            found = await self._again(claim)
            body = status.merged(found.claim, self._driver_name, _entries(devices), found.statuses)
            await self._api.patch(status.path(claim), body, fieldManager=self._driver_name)

    async def _again(self, claim: resource.Claim) -> claims.Found:
        return await self._claims.get(contract.ClaimRef(uid=claim.uid, namespace=claim.namespace, name=claim.name))

    async def _apply(self, claim: resource.Claim, devices: Devices) -> None:
        body = status.patch(claim, self._driver_name, _entries(devices))
        kind, owner = apiserver.Patch.APPLY, self._driver_name
        await self._api.patch(status.path(claim), body, kind=kind, fieldManager=owner, force=True)

    def _stored(self, found: claims.Found, devices: Devices) -> bool:
        stored = {
            (entry.get("pool", ""), entry.get("device", ""), entry.get("shareID") or ""): (
                entry.get("data") or {},
                {
                    (one["type"], one["status"] == "True", one["reason"], one["message"])
                    for one in entry.get("conditions") or ()
                },
            )
            for entry in found.statuses
            if entry.get("driver") == self._driver_name
        }
        return all(
            stored.get((device.pool, device.device, device.share_id)) == (device.data, _said(device))
            for device in devices
        )


def _said(device: contract.PreparedDevice) -> set[tuple[str, bool, str, str]]:
    """Its conditions without their times: these alone are no reason to write."""
    return {(one.type, one.status, one.reason, one.message) for one in device.conditions}


def _entries(devices: Devices) -> tuple[status.DeviceStatus, ...]:
    return tuple(
        status.DeviceStatus(
            pool=device.pool,
            device=device.device,
            share_id=device.share_id,
            data=device.data,
            conditions=tuple(
                status.Condition(
                    type=one.type, status=one.status, reason=one.reason, message=one.message, since=one.since
                )
                for one in device.conditions
            ),
        )
        for device in devices
    )
