"""Test bench that compares every op with TensorFlow itself. See `python -m tests.oracle --help`."""
