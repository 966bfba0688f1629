"""The code of a job in its replica: fetch it from the control plane, check it, cache it."""
