"""Limits of size, time, number and rate, and security headers, before and around Django."""
