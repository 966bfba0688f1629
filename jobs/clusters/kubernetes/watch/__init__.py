"""The watch of a cluster: reflectors, caches, the queue of changes, nodes."""
