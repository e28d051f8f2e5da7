"""The lists of the API that a question about room is answered by, read when it is asked."""

import asyncio
from collections.abc import Mapping
from typing import Any

from api import errors
from kube import apiserver

JSON = Mapping[str, Any]
_RESOURCES = "/apis/resource.k8s.io/v1"
_LISTS = {
    "slices": f"{_RESOURCES}/resourceslices",
    "device_classes": f"{_RESOURCES}/deviceclasses",
    "claims": f"{_RESOURCES}/resourceclaims",
    "templates": f"{_RESOURCES}/resourceclaimtemplates",
    "rules": f"{_RESOURCES}/devicetaintrules",
    "nodes": "/api/v1/nodes",
}
_OPTIONAL = ("rules",)
"""What older servers do not serve."""


async def gather(api: apiserver.APIServer) -> tuple[dict[str, list[JSON]], dict[str, str]]:
    """What could be read, and why the rest could not. Raises Unavailable where no server answers."""
    found = await asyncio.gather(*(_read(api, path) for path in _LISTS.values()))
    lists, unknown = {}, {}
    for kind, (items, why) in zip(_LISTS, found, strict=True):
        lists[kind] = items
        if why and kind not in _OPTIONAL:
            unknown[kind] = why
    return lists, unknown


async def _read(api: apiserver.APIServer, path: str) -> tuple[list[JSON], str]:
    try:
        return [item async for item in api.each(path)], ""
    except errors.Unavailable:
        raise
    except errors.ElasticGPUError as error:
        return [], str(error)
