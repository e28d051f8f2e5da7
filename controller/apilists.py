"""The lists of the API that a question about room is answered by, read when it is asked."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

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


async def all_of(api: apiserver.APIServer, path: str, **query: Any) -> list[JSON]:
    """All pages of a collection."""
    items: list[JSON] = []
    following = ""
    while True:
        page = await api.list_page(path, following=following, **query)
        items += map(_object, page.items)
        following = page.following
        if not following:
            return items


def _object(item: Any) -> JSON:
    found: JSON = msgspec.json.decode(item)
    return found


async def _read(api: apiserver.APIServer, path: str) -> tuple[list[JSON], str]:
    try:
        return await all_of(api, path), ""
    except errors.Unavailable:
        raise
    except errors.ElasticGPUError as error:
        return [], str(error)
