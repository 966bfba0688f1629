"""The pages: parse, call one service, render. A browser gets the page, htmx the part named in HX-Target."""
