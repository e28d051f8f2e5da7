"""Clusters and claims of every kind that an API server would store, drawn by hypothesis as the API's JSON."""

from typing import Any

from hypothesis import strategies as st

DRIVERS = ("a.example.com", "b.example.com")
MODEL = 'device.attributes["a.example.com"].model == "large"'
TEXTS = (
    "true",
    'device.driver == "a.example.com"',
    'device.driver == "a.example.com" && "model" in device.attributes["a.example.com"] && ' + MODEL,
    MODEL,
    'device.attributes["a.example.com"].index < 3',
    'device.attributes["a.example.com"].uuid != "u1"',
    'device.capacity["a.example.com"].memory.compareTo(quantity("40Gi")) >= 0',
    "device.allowMultipleAllocations",
    '1 == device.attributes["a.example.com"].?root.orValue(1)',
    'device.attributes["a.example.com"].exists(name, name == "uuid")',
    '"memory" in device.capacity[device.driver] && device.capacity[device.driver].memory.isGreaterThan(quantity("50Gi"))',
    "false",
)
TAINTS = (("x", "1", "NoSchedule"), ("x", "", "NoExecute"), ("y", "", "None"), ("y", "2", "NoSchedule"))
TOLERATIONS = (
    {"operator": "Exists"},
    {"key": "x", "operator": "Exists"},
    {"key": "x", "operator": "Equal", "value": "1"},
    {"key": "y", "operator": "Equal", "value": "2", "effect": "NoSchedule"},
    {"key": "x", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
)
POLICIES = {
    "cores": (
        {"default": "100", "validRange": {"min": "0", "step": "1"}},
        {"default": "10", "validRange": {"min": "10", "step": "10", "max": "90"}},
        {"default": "1", "validRange": {"min": "500m", "step": "250m"}},
        None,
    ),
    "memory": (
        {"default": "80Gi", "validRange": {"min": "1Mi", "step": "1Mi"}},
        {"default": "10Gi", "validValues": ["10Gi", "20Gi", "40Gi"]},
        {"default": "1Gi", "validRange": {"min": "1Gi", "max": "50Gi"}},
        None,
    ),
    "shares": ({"default": "1", "validRange": {"min": "1", "step": "1"}}, {"default": "1"}, None),
}
SIZES = {"cores": ("100",), "memory": ("80Gi", "40Gi"), "shares": ("2", "16")}
ASKED = {
    "cores": ("25", "0", "50", "100", "33.3", "7", "200", "0.0001"),
    "memory": ("1Mi", "10Gi", "12345678", "41Gi", "90Gi"),
}


@st.composite
def clusters(draw: st.DrawFn) -> dict[str, Any]:
    """nodes, slices, classes, claims that are allocated, claims that wait."""
    nodes = [_node(name, draw(st.sampled_from("ab"))) for name in ("n1", "n2")[: draw(st.integers(1, 2))]]
    pools = [_pool(draw, number) for number in range(draw(st.integers(1, 3)))]
    slices = [one for pool in pools for one in pool]
    slices = draw(st.permutations(slices)) if draw(st.booleans()) else slices
    devices = [
        (one["spec"]["driver"], one["spec"]["pool"]["name"], device)
        for one in slices
        for device in one["spec"].get("devices") or ()
    ]
    return {
        "nodes": nodes,
        "slices": slices,
        "classes": [_class(draw, name) for name in ("one", "two")],
        "allocated": [_allocated(draw, number, devices) for number in range(draw(st.integers(0, 3)))]
        if devices
        else [],
        "claims": [_claim(draw, f"c{number}") for number in range(draw(st.sampled_from((1, 1, 1, 2))))],
    }


def _node(name: str, zone: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"zone": zone, "rank": "7"}}}


def _where(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(("node", "node", "node", "node", "node", "all", "zone", "rank", "name")))
    if kind == "node":
        return {"nodeName": draw(st.sampled_from(("n1", "n1", "n1", "n1", "n2")))}
    if kind == "all":
        return {"allNodes": True}
    if kind == "name":
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    elif kind == "rank":
        term = {"matchExpressions": [{"key": "rank", "operator": draw(st.sampled_from(("Gt", "Lt"))), "values": ["5"]}]}
    else:
        operator = draw(st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist")))
        values = {"values": ["a"]} if operator in ("In", "NotIn") else {}
        term = {"matchExpressions": [{"key": "zone", "operator": operator, **values}]}
    return {"nodeSelector": {"nodeSelectorTerms": [term]}}


def _pool(draw: st.DrawFn, number: int) -> list[dict[str, Any]]:
    driver = draw(st.sampled_from(DRIVERS))
    name = draw(st.sampled_from((f"p{number}", f"p{number}", f"p{number}", "p0")))
    where = _where(draw)
    each = draw(st.integers(0, 5)) == 5
    counted = draw(st.integers(0, 3)) == 3
    kinds = [_kind(draw) for _ in range(draw(st.integers(1, 2)))]
    count = draw(st.integers(1, 2))
    total = count + counted
    told = draw(st.sampled_from((total,) * 12 + (total + 1,)))
    bodies: list[dict[str, Any]] = []
    number_of = 0
    for _ in range(count):
        devices = []
        for _ in range(draw(st.integers(1, 4))):
            devices.append(_device(draw, kinds, number_of, counted=counted))
            number_of += draw(st.integers(0, 60)) < 60  # now and then a name is there twice
            if each:
                devices[-1] |= _where(draw)
        bodies.append({"devices": devices})
    if counted:
        set_ = {"name": "set", "counters": {"slots": {"value": draw(st.sampled_from(("2", "4", "7")))}}}
        other = {"name": "other", "counters": {"slots": {"value": "1"}, "more": {"value": "500m"}}}
        bodies.append({"sharedCounters": [set_, other][: draw(st.integers(1, 2))]})
    generation = draw(st.sampled_from((1, 1, 1, 1, 2)))
    out = []
    for index, body in enumerate(bodies):
        place = {"perDeviceNodeSelection": True} if each else where
        if not each and draw(st.integers(0, 11)) == 11:
            place = _where(draw)
        if body.get("sharedCounters") and each:
            place = {"perDeviceNodeSelection": True}
        age = generation if draw(st.integers(0, 20)) < 20 else 1
        pool = {"name": name, "generation": age, "resourceSliceCount": told}
        suffix = draw(st.sampled_from(("a", "b", "c")))
        out.append(
            {
                "metadata": {"name": f"{suffix}-{number}-{index}"},
                "spec": {"driver": driver, "pool": pool, **place, **body},
            }
        )
    return out


def _kind(draw: st.DrawFn) -> dict[str, Any]:
    """What the devices of a kind have in common."""
    shareable = draw(st.booleans())
    capacity: dict[str, Any] = {}
    for name in ("cores", "memory", "shares"):
        if draw(st.integers(0, 4)):
            capacity[name] = {"value": draw(st.sampled_from(SIZES[name]))}
            policy = draw(st.sampled_from(POLICIES[name]))
            if shareable and policy is not None:
                capacity[name]["requestPolicy"] = policy
    attributes = {"model": {"string": draw(st.sampled_from(("large", "small")))}}
    if draw(st.integers(0, 9)) == 9:
        attributes = {}
    out: dict[str, Any] = {"attributes": attributes}
    if shareable:
        out["allowMultipleAllocations"] = True
    if capacity:
        out["capacity"] = capacity
    return out


def _device(draw: st.DrawFn, kinds: list[dict[str, Any]], number: int, *, counted: bool) -> dict[str, Any]:
    kind = draw(st.sampled_from(kinds))
    root = draw(
        st.sampled_from(({"string": "r1"}, {"string": "r2"}, {"int": 1}, {"bool": True}, {"version": "1.0.0"}, None))
    )
    attributes = {**kind["attributes"], "index": {"int": number}, "uuid": {"string": f"u{number}"}}
    if root is not None:
        attributes[draw(st.sampled_from(("root", "a.example.com/root")))] = root
    out: dict[str, Any] = {**kind, "name": f"d{number}", "attributes": attributes}
    if draw(st.integers(0, 9)) == 9:
        key, value, effect = draw(st.sampled_from(TAINTS))
        out["taints"] = [{"key": key, "effect": effect} | ({"value": value} if value else {})]
    if counted and draw(st.integers(0, 3)):
        amount = draw(st.sampled_from(("1", "2", "3")))
        out["consumesCounters"] = [{"counterSet": "set", "counters": {"slots": {"value": amount}}}]
        if draw(st.integers(0, 3)) == 0:
            out["consumesCounters"].append({"counterSet": "other", "counters": {"more": {"value": "250m"}}})
    if draw(st.integers(0, 14)) == 14:
        out |= {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
        if draw(st.booleans()):
            out["bindsToNode"] = True
    return out


def _class(draw: st.DrawFn, name: str) -> dict[str, Any]:
    texts = draw(st.lists(st.sampled_from((*TEXTS[:3] * 6, *TEXTS)), max_size=1))
    spec: dict[str, Any] = {"selectors": [_cel(text) for text in texts]}
    if draw(st.booleans()):
        spec["config"] = [{"opaque": {"driver": DRIVERS[0], "parameters": {"from": name}}}]
    return {"metadata": {"name": name}, "spec": spec}


def _cel(text: str) -> dict[str, Any]:
    return {"cel": {"expression": text}}


def _allocated(draw: st.DrawFn, number: int, devices: list[tuple[str, str, dict[str, Any]]]) -> dict[str, Any]:
    results = []
    for index in range(draw(st.integers(1, 2))):
        driver, pool, device = draw(st.sampled_from(devices))
        result: dict[str, Any] = {"request": "r", "driver": driver, "pool": pool, "device": device["name"]}
        way = draw(st.sampled_from(("as offered", "as offered", "whole", "share", "admin")))
        if way == "admin":
            result["adminAccess"] = True
        elif way == "share" or (way == "as offered" and device.get("allowMultipleAllocations")):
            result["shareID"] = f"00000000-0000-0000-0000-0000000{number:02}{index:03}"
            if way == "as offered":
                taken = {
                    "cores": st.sampled_from(("0", "25", "50")),
                    "memory": st.sampled_from(("1Mi", "10Gi", "40Gi")),
                }
                consumed = {name: draw(taken[name]) for name in taken if name in (device.get("capacity") or {})}
                result["consumedCapacity"] = consumed | {"shares": "1"}
        results.append(result)
    return {
        "metadata": {"name": f"held{number}", "namespace": "default", "uid": f"held{number}"},
        "spec": {},
        "status": {"allocation": {"devices": {"results": results}}},
    }


def _claim(draw: st.DrawFn, name: str) -> dict[str, Any]:
    requests: list[dict[str, Any]] = []
    for number in range(draw(st.sampled_from((1, 1, 2, 3)))):
        request = f"r{number}"
        if draw(st.integers(0, 4)) == 4:
            options = [{"name": f"s{sub}", **_option(draw)} for sub in range(draw(st.integers(1, 3)))]
            requests.append({"name": request, "firstAvailable": options})
        else:
            exactly = _option(draw)
            if draw(st.integers(0, 7)) == 7:
                exactly["adminAccess"] = True
            requests.append({"name": request, "exactly": exactly})
    devices: dict[str, Any] = {"requests": requests}
    if draw(st.integers(0, 3)) == 3:
        devices["constraints"] = [_constraint(draw, requests) for _ in range(draw(st.integers(1, 2)))]
    if draw(st.integers(0, 2)) == 0:
        named = draw(st.sampled_from(([], ["r0"], [request["name"] for request in requests], ["r0/s0"])))
        config: dict[str, Any] = {"opaque": {"driver": DRIVERS[1], "parameters": {"of": name}}}
        devices["config"] = [config | ({"requests": named} if named else {})]
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"devices": devices}}


def _option(draw: st.DrawFn) -> dict[str, Any]:
    name = draw(st.sampled_from(("one",) * 20 + ("two",) * 20 + ("missing",)))
    out: dict[str, Any] = {"deviceClassName": name, "allocationMode": "ExactCount"}
    if draw(st.integers(0, 11)) == 11:
        out["allocationMode"] = "All"
    else:
        out["count"] = draw(st.sampled_from((1,) * 12 + (2, 2, 2, 3, 3, 4, 9, 32, 33)))
    if draw(st.integers(0, 2)) == 0:
        out["selectors"] = [_cel(draw(st.sampled_from((*TEXTS[:3] * 4, *TEXTS))))]
    if draw(st.integers(0, 3)) == 0:
        out["tolerations"] = [draw(st.sampled_from(TOLERATIONS))]
    if draw(st.integers(0, 1)) == 0:
        names = draw(st.sampled_from((("cores",), ("cores", "memory"), ("memory",), ("cores", "memory", "unknown"))))
        amounts = {
            key: draw(st.sampled_from(ASKED.get(key, ("1",))))
            for key in names
            if key != "unknown" or draw(st.integers(0, 3)) == 0
        }
        out["capacity"] = {"requests": amounts}
    return out


def _constraint(draw: st.DrawFn, requests: list[dict[str, Any]]) -> dict[str, Any]:
    kind = draw(st.sampled_from(("matchAttribute", "distinctAttribute")))
    attribute = draw(
        st.sampled_from(("a.example.com/root", "a.example.com/root", "b.example.com/model", "a.example.com/index"))
    )
    out: dict[str, Any] = {kind: attribute}
    named = draw(st.sampled_from(([], [request["name"] for request in requests], ["r0"], ["r0/s0", "r1"])))
    return out | ({"requests": named} if named else {})


@st.composite
def tight(draw: st.DrawFn) -> dict[str, Any]:
    """One node and one pool, where cards, parts of them and counters are nearly gone: what is counted decides."""
    slots = {"name": "set", "counters": {"slots": {"value": draw(st.sampled_from(("2", "3", "4")))}}}
    devices = []
    for number in range(draw(st.integers(1, 4))):
        root = draw(st.sampled_from(({"string": "r1"}, {"string": "r1"}, {"string": "r2"}, None)))
        device: dict[str, Any] = {"name": f"d{number}", "attributes": {"root": root} if root else {}}
        if draw(st.integers(0, 3)):
            device["allowMultipleAllocations"] = True
            cores = {"value": "100", "requestPolicy": POLICIES["cores"][0]}
            memory = {"value": "80Gi", "requestPolicy": draw(st.sampled_from(POLICIES["memory"][:3]))}
            device["capacity"] = {"cores": cores, "memory": memory}
        if draw(st.integers(0, 2)):
            amount = draw(st.sampled_from(("1", "2")))
            device["consumesCounters"] = [{"counterSet": "set", "counters": {"slots": {"value": amount}}}]
        devices.append(device)
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 2}
    spec = {"driver": DRIVERS[0], "pool": pool, "nodeName": "n1"}
    held = [
        _held(device, number, draw(st.sampled_from(("0", "25", "50", "100"))))
        for number, device in enumerate(devices)
        if draw(st.booleans())
    ]
    return {
        "nodes": [_node("n1", "a")],
        "slices": [
            {"metadata": {"name": "devices"}, "spec": {**spec, "devices": devices}},
            {"metadata": {"name": "counters"}, "spec": {**spec, "sharedCounters": [slots]}},
        ],
        "classes": [{"metadata": {"name": "one"}, "spec": {}}],
        "allocated": held,
        "claims": [_tight_claim(draw, f"c{number}") for number in range(draw(st.integers(1, 2)))],
    }


def _held(device: dict[str, Any], number: int, cores: str) -> dict[str, Any]:
    result: dict[str, Any] = {"request": "r", "driver": DRIVERS[0], "pool": "p", "device": device["name"]}
    if device.get("allowMultipleAllocations"):
        result["shareID"] = f"00000000-0000-0000-0000-{number:012}"
        result["consumedCapacity"] = {"cores": cores, "memory": "10Gi"}
    meta = {"name": f"held{number}", "namespace": "default", "uid": f"held{number}"}
    return {"metadata": meta, "spec": {}, "status": {"allocation": {"devices": {"results": [result]}}}}


def _tight_claim(draw: st.DrawFn, name: str) -> dict[str, Any]:
    requests = []
    for number in range(draw(st.integers(1, 2))):
        exactly: dict[str, Any] = {
            "deviceClassName": "one",
            "allocationMode": "ExactCount",
            "count": draw(st.integers(1, 2)),
        }
        if draw(st.integers(0, 3)) == 3:
            exactly = {"deviceClassName": "one", "allocationMode": "All"}
        if draw(st.integers(0, 3)):
            exactly["capacity"] = {"requests": {"cores": draw(st.sampled_from(ASKED["cores"])), "memory": "10Gi"}}
        if draw(st.integers(0, 7)) == 7:
            exactly["adminAccess"] = True
        requests.append({"name": f"r{number}", "exactly": exactly})
    devices: dict[str, Any] = {"requests": requests}
    if draw(st.integers(0, 2)) == 2:
        devices["constraints"] = [
            {draw(st.sampled_from(("matchAttribute", "distinctAttribute"))): "a.example.com/root"}
        ]
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"devices": devices}}
