"""Comparing what the two servers answered."""

import re

import numpy as np

from tests.master import CODE_NAMES
from tests.oracle import dtypes

NO_KERNEL = re.compile(r"No OpKernel|Could not find device for node|Op type not registered|is not implemented in graphmill")


def compare(check, reference, ours):
    """None if the answers agree as `check` asks, else one line saying how they differ.

    An answer is a list with an entry for every step: {fetch name: TensorProto}, or a MasterError.
    """
    if len(reference) != len(ours):
        return f"{_short(ours[-1])} where TensorFlow ran {len(reference)} steps, ending with {_short(reference[-1])}"
    failed = False
    for number, (theirs, mine) in enumerate(zip(reference, ours, strict=True)):
        step = f"step {number}: " if len(reference) > 1 else ""
        difference = _compare_step(check, theirs, mine)
        if difference:
            return step + difference
        failed = failed or not isinstance(theirs, dict)
    if failed != check.fails and not check.either:
        return f"wrong table: TensorFlow answers {_short(reference[-1])}"
    return None


def _compare_step(check, theirs, mine):
    if isinstance(theirs, dict):
        if not isinstance(mine, dict):
            return _short(mine)
        for name, proto in theirs.items():
            if name not in mine:
                return f"no answer for {name}"
            difference = compare_tensors(check, proto, mine[name])
            if difference:
                return difference
        return None
    if NO_KERNEL.search(theirs.text):
        return f"wrong table: TensorFlow has no such kernel: {_short(theirs)}"
    if check.code is not None and theirs.code != check.code:
        return f"wrong table: TensorFlow answers {_short(theirs)}"
    if isinstance(mine, dict):
        return None if check.more else f"no error, TensorFlow answers {_short(theirs)}"
    if NO_KERNEL.search(mine.text) or mine.code != theirs.code:
        return f"{_short(mine)}, TensorFlow answers {_short(theirs)}"
    if check.text and not plain_text(mine.text).startswith(plain_text(theirs.text)):  # ours may say more
        return f"text {plain_text(mine.text)!r}, TensorFlow says {plain_text(theirs.text)!r}"
    return None


def plain_text(text):
    """A message without what the executor and the master add around the kernel's own words."""
    text = re.sub(r"^From /job:[^\n]*:\n", "", text)
    return re.sub(r"\n\t ?\[\[.*", "", text, flags=re.S).strip()


def _short(answer):
    if isinstance(answer, dict):
        return "a result"
    text = " ".join(plain_text(answer.text).split())
    return f"{CODE_NAMES.get(answer.code, answer.code)} {text[:160]!r}"


def compare_tensors(check, theirs, mine):
    """None, or how tensor `mine` differs from `theirs`."""
    name, want = dtypes.from_proto(theirs)
    try:
        mine_name, got = dtypes.from_proto(mine)
    except (ValueError, TypeError, KeyError) as error:
        return f"malformed tensor: {error}"
    if name != mine_name:
        return f"dtype {mine_name}, TensorFlow {name}"
    if want is None:
        return None
    if want.shape != got.shape:
        return f"shape {list(got.shape)}, TensorFlow {list(want.shape)}"
    if check.shapes_only or want.size == 0:
        return None
    with np.errstate(all="ignore"):
        same = _agree(check, name, want, got)
    if same.all():
        return None
    at = np.unravel_index(np.argmin(same), want.shape)
    wrong = int(same.size - np.count_nonzero(same))
    place = list(map(int, at))
    return f"{wrong} of {want.size} values differ, at {place}: {got[at]!r}, TensorFlow {want[at]!r}"


def _agree(check, name, want, got):
    """Elementwise: do the values agree? Flattened dtype rules of the bench: NaN equals NaN, -0.0 differs from 0.0."""
    if name in dtypes.COMPLEX:
        return _agree_complex(check, name, want, got)
    if not dtypes.is_inexact(name):
        return want == got
    wide_want, wide_got = want.astype(np.float64), got.astype(np.float64)
    same = (wide_want == wide_got) & (np.signbit(wide_want) == np.signbit(wide_got))
    same |= np.isnan(wide_want) & np.isnan(wide_got)
    if check.zeros:
        same |= (wide_want == 0) & (wide_got == 0)
    return same | _close(check, name, np.abs(wide_want), wide_want, wide_got)


def _agree_complex(check, name, want, got):
    parts = []
    size = np.abs(want)
    for a, b in ((want.real, got.real), (want.imag, got.imag)):
        same = (a == b) & (check.zeros | (np.signbit(a) == np.signbit(b))) | np.isnan(a) & np.isnan(b)
        parts.append(same | _close(check, name, size, a, b))
    return parts[0] & parts[1]


def _close(check, name, size, want, got):
    """Within the tolerance of the check; zeros of either sign count as close only if it has an absolute part."""
    # A complex value is made of several real operations, each with its own error.
    units = dtypes.epsilon(name) * (4 if name in dtypes.COMPLEX else 1)
    rtol = check.rtol + check.ulp * units
    atol = check.atol + check.abs_ulp * units
    if not rtol and not atol:
        return np.zeros(want.shape, bool)
    near = np.abs(want - got) <= atol + rtol * size
    near &= np.isfinite(want) & np.isfinite(got)
    if not atol:
        near &= (want != 0) | (got != 0) | (np.signbit(want) == np.signbit(got))
    return near
