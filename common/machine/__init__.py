"""The machine of local jobs: their user, folders that they can write, environments of processes."""
