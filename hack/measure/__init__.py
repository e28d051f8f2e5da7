"""The parts of `hack/bench.py`: a real API server, a kubelet stand-in, two plugins side by side, and the table."""
