"""A real Kubernetes for the demo, the tests and the benchmarks; the README says how."""

from hack.cluster.cluster import Cluster

__all__ = ["Cluster"]
