"""One program a library: it makes the same calls in that library's own ways and reports."""
