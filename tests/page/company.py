"""The cluster of the README's picture and capture: six nodes, research and web."""

from tests.view.objects import (
    GI,
    JSON,
    a_card,
    a_claim,
    a_driver,
    a_node,
    a_pod,
    a_result,
    a_slice,
)  # fmt: skip

NODES = tuple(f"gpu-{row}{number}" for row in "ab" for number in (1, 2, 3))


def a_company() -> list[JSON]:
    """Six nodes of eight cards: training on whole ones, inference on shares, one card lost, one pod that waits."""
    lost = {"key": "gpu.elasticgpu.io/lost", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
    found: list[JSON] = []
    for row, node in enumerate(NODES):
        model, memory = ("NVIDIA H100 80GB HBM3", "80Gi") if node.startswith("gpu-a") else ("NVIDIA L40S", "48Gi")
        cards = [
            a_card(
                8 * row + at + 1,
                model=model,
                memory=memory,
                shared=True,
                **({"taints": [lost]} if (row, at) == (1, 6) else {}),
            )
            for at in range(8)
        ]
        found += [a_slice(*cards, node=node), a_node(node), a_driver(node)]
    for number in (1, 2, 3, 4, 9, 10, 11, 17):
        node = NODES[(number - 1) // 8]
        found += [
            a_claim(f"train-{number}", a_result(number, node=node), namespace="research", pods=(f"train-{number}",)),
            a_pod(
                f"train-{number}", claim=f"train-{number}", namespace="research", node=node, workload_type="training"
            ),
        ]
    for at, number in enumerate((25, 25, 26, 26, 26, 27, 33, 34, 34, 41, 42, 43)):
        node, name = NODES[(number - 1) // 8], f"chat-{at}"
        part = {"memory": str((6 + 3 * (at % 4)) * GI), "cores": "20", "shares": "1"}
        found += [
            a_claim(
                name,
                a_result(number, node=node, consumedCapacity=part, shareID=name),
                namespace="web",
                pods=(name,),
                of_class="inference.elasticgpu.io",
            ),
            a_pod(name, claim=name, namespace="web", node=node, workload_type="inference"),
        ]
    return [
        *found,
        a_claim("wish", namespace="research"),
        a_pod("late", claim="wish", namespace="research", phase="Pending"),
    ]
