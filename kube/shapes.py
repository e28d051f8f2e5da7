"""What is read of an object's JSON: plain dicts, without what nobody looks at.

`managedFields` are a third to a half of most objects, and the images of a node more than all the rest of it: to skip them takes
a fraction of the time that it takes to make dicts of them. Values are not checked here, and nothing has to be there.
"""

from typing import Any, TypedDict


class Meta(TypedDict, total=False):
    name: Any
    generateName: Any
    namespace: Any
    uid: Any
    resourceVersion: Any
    generation: Any
    creationTimestamp: Any
    deletionTimestamp: Any
    deletionGracePeriodSeconds: Any
    labels: Any
    annotations: Any
    ownerReferences: Any
    finalizers: Any


class Whole(TypedDict, total=False):
    """For kinds that have spec and status alone, which are most."""

    apiVersion: Any
    kind: Any
    metadata: Meta
    spec: Any
    status: Any


class NodeStatus(TypedDict, total=False):
    allocatable: Any
    conditions: Any


class Node(TypedDict, total=False):
    apiVersion: Any
    kind: Any
    metadata: Meta
    spec: Any
    status: NodeStatus
