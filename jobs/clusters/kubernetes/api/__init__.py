"""Requests to the API server: session, requests in parallel, decoding of the fields in use."""
