"""What is read of a cluster besides its watches: the output of containers, and whether it has what Muster needs."""
