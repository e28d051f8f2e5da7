"""What the API side of a program did, as counters; registered once when imported, zero from the start."""

import prometheus_client

slice_writes = prometheus_client.Counter("elasticgpu_slice_writes", "Writes of ResourceSlices", ["verb"])
slice_failures = prometheus_client.Counter(
    "elasticgpu_slice_failures", "Rounds of publishing that failed and are retried"
)
watch_restarts = prometheus_client.Counter(
    "elasticgpu_watch_restarts", "Watches that ended and were opened again", ["resource"]
)
for _verb in ("create", "replace", "delete"):
    slice_writes.labels(_verb)
