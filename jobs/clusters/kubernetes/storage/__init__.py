"""Claims and what is in them."""
