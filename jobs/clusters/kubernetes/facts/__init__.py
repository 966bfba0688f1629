"""Pods, Events and sizes of nodes as values. Pure."""
