"""A real Kubernetes control plane for the tests: built from source once, started in seconds, with nodes that are not there.

`python -m rig up --nodes 20` prints a kubeconfig and stays up until it is interrupted.
"""
