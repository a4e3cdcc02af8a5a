"""Speed of graphmill beside TensorFlow's own server, as ratios taken in one run. See `python -m bench --help`."""
