"""A program for each library, which makes the same calls in that library's forms."""
