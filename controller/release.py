"""What the chart has done around a release: `egpu-release crds` before an upgrade, `egpu-release leave` before a removal.

    crds    the CRDs of this version are applied, since Helm only ever installs them once
    leave   refuses, with names, while claims hold cards: their pods could not end once the node driver is gone

Each is a Job of the chart, with rights of its own; what it writes to its log is what an admin reads.
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping
from typing import Any

from api import crds, errors, names
from kube import apiserver, program

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
_DRIVERS = frozenset({names.LOCAL_DRIVER, names.REMOTE_DRIVER})
_MOST_NAMED = 20


async def apply_crds(api: apiserver.APIServer) -> str:
    """Says what it did. Raises an error of ours where one could not be applied."""
    applied = []
    for crd in crds.crds():
        name = crd["metadata"]["name"]
        kind = apiserver.Patch.APPLY
        await api.patch(f"{_CRDS}/{name}", crd, kind=kind, fieldManager=names.FIELD_MANAGER, force=True)
        applied.append(name)
    return f"applied {', '.join(applied)}"


async def check_claims(api: apiserver.APIServer) -> str:
    """Says that nothing is held. Raises Conflict with the claims that hold cards."""
    held = [found async for claim in api.each(_CLAIMS) if (found := _holder(claim))]
    if held:
        shown = ", ".join(held[:_MOST_NAMED]) + (
            f" and {len(held) - _MOST_NAMED} more" if len(held) > _MOST_NAMED else ""
        )
        raise errors.Conflict(
            f"{len(held)} claims still hold cards: {shown}. Their pods could not end once the node driver is gone: end them "
            "first, or remove the release with --no-hooks and live with it"
        )
    return "no claim holds a card"


def _holder(claim: Mapping[str, Any]) -> str:
    results = ((claim.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results") or ()
    ours = any(result.get("driver") in _DRIVERS for result in results)
    return f"{claim['metadata']['namespace']}/{claim['metadata']['name']}" if ours else ""


_VERBS = {"crds": apply_crds, "leave": check_claims}


async def _performed(verb: str) -> str:
    async with apiserver.APIServer.connect(user_agent=f"elastic-gpu-release/{program.version()}") as api:
        return await _VERBS[verb](api)


def main() -> None:
    """The entry point `egpu-release`. Ends with 0 when it is done, with 1 where it is not."""
    parser = argparse.ArgumentParser(prog="egpu-release", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("verb", choices=sorted(_VERBS))
    verb = parser.parse_args().verb
    try:
        sys.stdout.write(f"{asyncio.run(_performed(verb))}\n")
    except errors.ElasticGPUError as error:
        sys.stderr.write(f"egpu-release {verb}: {error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
