"""Writes src/unicode_scripts.tsv: ranges of characters with the number of their script, as an installed TensorFlow numbers them.

A line is the first and the last character of a range, in hexadecimal, and the script. What is in no range has the script Unknown.

    python kernels/string/make_unicode_scripts.py
"""

import itertools
import pathlib

import numpy as np
import tensorflow as tf

UNKNOWN = 103


def main():
    scripts = tf.strings.unicode_script(np.arange(0x110000, dtype=np.int32)).numpy()
    lines, first = [], 0
    for script, run in itertools.groupby(scripts):
        last = first + len(list(run)) - 1
        if script != UNKNOWN:
            lines.append(f"{first:x}\t{last:x}\t{script}\n")
        first = last + 1
    (pathlib.Path(__file__).parent / "src/unicode_scripts.tsv").write_text("".join(lines))


if __name__ == "__main__":
    main()
