"""The case tables, one module for a topic; the part of its name before `_` is its family."""
