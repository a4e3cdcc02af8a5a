"""Writes src/sobol_numbers.bin: what the direction numbers of Sobol sequences follow from, out of TensorFlow's table of them.

The numbers are those of S. Joe and F. Y. Kuo ("Constructing Sobol sequences with better two-dimensional projections", 2008;
new-joe-kuo-6.21201), which come with a licence of the BSD kind. For each dimension but the first the file has, bit after bit from
the lowest of each byte on: the degree of the polynomial less one (5 bits), its inner coefficients (degree - 1 bits), and the first
numbers without their lowest bit, which is one (0, 1, 2, ... bits).

    python kernels/random/make_sobol_numbers.py
"""

import pathlib
import re

import tensorflow as tf

DIGITS = 31


def follows(degree, coefficients, numbers):
    """Whether the numbers obey the recurrence of a polynomial."""
    return all(number == step(degree, coefficients, numbers, i) for i, number in enumerate(numbers) if i >= degree)


def step(degree, coefficients, numbers, i):
    number = numbers[i - degree] ^ (numbers[i - degree] << degree)
    for k in range(1, degree):
        if coefficients >> (degree - 1 - k) & 1:
            number ^= numbers[i - k] << k
    return number


def solve(numbers, least):
    """The first polynomial from a degree on that the numbers obey."""
    for degree in range(least, DIGITS):
        # Coefficients are linear over the bits of the numbers, so a few equations decide them.
        rows = []
        for i in range(degree, DIGITS):
            rest = numbers[i] ^ numbers[i - degree] ^ (numbers[i - degree] << degree)
            terms = [numbers[i - k] << k for k in range(1, degree)]
            for bit in range(i + 1):
                equation = sum((terms[k - 1] >> bit & 1) << (degree - 1 - k) for k in range(1, degree))
                rows.append((equation, rest >> bit & 1))
        coefficients = eliminate(rows)
        if coefficients is not None and follows(degree, coefficients, numbers):
            return degree, coefficients
    raise ValueError("no polynomial")


def eliminate(rows):
    """A solution of equations over bits, or None."""
    pivots = {}
    for equation, value in rows:
        while equation:
            top = equation.bit_length() - 1
            if top not in pivots:
                pivots[top] = (equation, value)
                break
            equation ^= pivots[top][0]
            value ^= pivots[top][1]
        else:
            if value:
                return None
    solution = 0
    for top in sorted(pivots):
        equation, value = pivots[top]
        if (bin(equation & solution).count("1") & 1) ^ value:
            solution |= 1 << top
    return solution


def main():
    header = pathlib.Path(tf.sysconfig.get_include()) / "external/sobol_data/sobol_data.h"
    packed, held, width = bytearray(), 0, 0
    degree = 1
    rows = re.findall(r"^\s*\{([\d, ]+)\}", header.read_text(), re.MULTILINE)
    for row in rows[1:]:
        numbers = [int(number) for number in row.split(",")]
        # Polynomials come in the order of their degrees.
        degree, coefficients = solve(numbers, degree)
        fields = [(degree - 1, 5), (coefficients, degree - 1)]
        fields += [(number >> 1, i) for i, number in enumerate(numbers[:degree])]
        for value, size in fields:
            held |= value << width
            width += size
        whole = width // 8
        packed += (held & ((1 << 8 * whole) - 1)).to_bytes(whole, "little")
        held >>= 8 * whole
        width -= 8 * whole
    packed += held.to_bytes(1, "little")
    (pathlib.Path(__file__).parent / "src/sobol_numbers.bin").write_bytes(packed)


if __name__ == "__main__":
    main()
