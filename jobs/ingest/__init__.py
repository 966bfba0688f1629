"""What agents send, from the socket to rows and files, and the code that they fetch."""
