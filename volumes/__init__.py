"""Shared folders that teams own: claims of a cluster, or folders of a machine."""
