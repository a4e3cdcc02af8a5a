"""Demonstrations: unmodified TensorFlow clients at work on graphmill."""
