"""What all requests share: error responses, paging, filters, streaming, compression, request ids."""
