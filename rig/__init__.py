"""A real Kubernetes control plane for tests: built from source once, started in seconds, with simulated nodes.

`python -m rig up --nodes 20` prints a kubeconfig and runs until it is interrupted.
"""
