"""Benchmarks of Muster, each beside a reference measured in the same run; bin/bench runs them."""
