"""The ranks of a replica: the shim that starts each of them, samples of their use, their reports."""
