"""Filters and tags for the templates of pages."""
