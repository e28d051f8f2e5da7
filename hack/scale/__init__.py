"""The controller beside a cluster of five thousand nodes: real etcd, kube-apiserver and kube-scheduler, no kubelets."""
