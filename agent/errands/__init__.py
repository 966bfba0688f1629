"""What the small pods of Muster's own run: the keeper of a claim, and the pods of a cluster's check."""
