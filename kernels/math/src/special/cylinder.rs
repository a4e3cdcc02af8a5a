//! Bessel functions of the first and second kind, and modified ones of the second kind, of orders 0 and 1.
//!
//! The modified functions are Chebyshev series of the Cephes library (Stephen L. Moshier), which TensorFlow's kernels use as well.

use crate::bessel;

/// `K0(x) + ln(x/2) I0(x)` up to 2, in `x² - 2`.
const K0_NEAR: [f64; 10] = [
    1.374465435613523e-16,
    4.25981614279661e-14,
    1.0349695257633842e-11,
    1.904516377220209e-09,
    2.5347910790261494e-07,
    2.286212103119452e-05,
    0.001264615411446926,
    0.0359799365153615,
    0.3442898999246285,
    -0.5353273932339028,
];
/// `exp(x) sqrt(x) K0(x)` above 2, in `8/x - 2`.
const K0_FAR: [f64; 25] = [
    5.300433772686263e-18,
    -1.6475804301524212e-17,
    5.2103915050390274e-17,
    -1.678231096805412e-16,
    5.512055978524319e-16,
    -1.848593377343779e-15,
    6.3400764774050706e-15,
    -2.2275133269916698e-14,
    8.032890775363575e-14,
    -2.9800969231727303e-13,
    1.140340588208475e-12,
    -4.514597883373944e-12,
    1.8559491149547177e-11,
    -7.957489244477107e-11,
    3.577397281400301e-10,
    -1.69753450938906e-09,
    8.574034017414225e-09,
    -4.660489897687948e-08,
    2.766813639445015e-07,
    -1.8317555227191195e-06,
    1.39498137188765e-05,
    -0.00012849549581627802,
    0.0015698838857300533,
    -0.0314481013119645,
    2.4403030820659555,
];
/// `x (K1(x) - ln(x/2) I1(x))` up to 2, in `x² - 2`.
const K1_NEAR: [f64; 11] = [
    -7.023863479386288e-18,
    -2.427449850519366e-15,
    -6.666901694199329e-13,
    -1.4114883926335278e-10,
    -2.213387630734726e-08,
    -2.4334061415659684e-06,
    -0.0001730288957513052,
    -0.006975723859639864,
    -0.12261118082265715,
    -0.3531559607765449,
    1.5253002273389478,
];
/// `exp(x) sqrt(x) K1(x)` above 2, in `8/x - 2`.
const K1_FAR: [f64; 25] = [
    -5.756744483665017e-18,
    1.7940508731475592e-17,
    -5.689462558442859e-17,
    1.838093544366639e-16,
    -6.057047248373319e-16,
    2.038703165624334e-15,
    -7.019837090418314e-15,
    2.4771544244813043e-14,
    -8.976705182324994e-14,
    3.3484196660784293e-13,
    -1.2891739609510289e-12,
    5.13963967348173e-12,
    -2.1299678384275683e-11,
    9.218315187605006e-11,
    -4.1903547593418965e-10,
    2.015049755197033e-09,
    -1.0345762465678097e-08,
    5.7410841254500495e-08,
    -3.5019606030878126e-07,
    2.406484947837217e-06,
    -1.936197974166083e-05,
    0.00019521551847135162,
    -0.002857816859622779,
    0.10392373657681724,
    2.7206261904844427,
];

/// The sum of a Chebyshev series by Clenshaw's recurrence, highest order first; `x` is twice the argument of the polynomials.
fn chebyshev(x: f64, coefficients: &[f64]) -> f64 {
    let (mut b0, mut b1, mut b2) = (0.0, 0.0, 0.0);
    for c in coefficients {
        b2 = b1;
        b1 = b0;
        b0 = x * b1 - b2 + c;
    }
    0.5 * (b0 - b2)
}

fn k0_near(x: f64) -> f64 {
    chebyshev(x * x - 2.0, &K0_NEAR) - (0.5 * x).ln() * bessel::i0(x)
}

fn k1_near(x: f64) -> f64 {
    chebyshev(x * x - 2.0, &K1_NEAR) / x + (0.5 * x).ln() * bessel::i1(x)
}

fn far(x: f64, coefficients: &[f64]) -> f64 {
    chebyshev(8.0 / x - 2.0, coefficients) / x.sqrt()
}

/// `K0(x)`; infinite where `x` is not positive.
pub(crate) fn k0(x: f64) -> f64 {
    if x <= 0.0 {
        f64::INFINITY
    } else if x <= 2.0 {
        k0_near(x)
    } else {
        (-x).exp() * far(x, &K0_FAR)
    }
}

/// `exp(x) K0(x)`; infinite where `x` is not positive.
pub(crate) fn k0e(x: f64) -> f64 {
    if x <= 0.0 {
        f64::INFINITY
    } else if x <= 2.0 {
        k0_near(x) * x.exp()
    } else {
        far(x, &K0_FAR)
    }
}

/// `K1(x)`; infinite where `x` is not positive.
pub(crate) fn k1(x: f64) -> f64 {
    if x <= 0.0 {
        f64::INFINITY
    } else if x <= 2.0 {
        k1_near(x)
    } else {
        (-x).exp() * far(x, &K1_FAR)
    }
}

/// `exp(x) K1(x)`; infinite where `x` is not positive.
pub(crate) fn k1e(x: f64) -> f64 {
    if x <= 0.0 {
        f64::INFINITY
    } else if x <= 2.0 {
        k1_near(x) * x.exp()
    } else {
        far(x, &K1_FAR)
    }
}

/// `J0(x)`.
pub(crate) fn j0(x: f64) -> f64 {
    libm::j0(x)
}

/// `J1(x)`.
pub(crate) fn j1(x: f64) -> f64 {
    libm::j1(x)
}

/// `Y0(x)`; minus infinity where `x` is not positive.
pub(crate) fn y0(x: f64) -> f64 {
    if x <= 0.0 { f64::NEG_INFINITY } else { libm::y0(x) }
}

/// `Y1(x)`; minus infinity where `x` is not positive.
pub(crate) fn y1(x: f64) -> f64 {
    if x <= 0.0 { f64::NEG_INFINITY } else { libm::y1(x) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wronskian_is_one_over_x() {
        for x in [0.1, 1.0, 1.9, 2.1, 5.0, 20.0] {
            let w = bessel::i0(x) * k1(x) + bessel::i1(x) * k0(x);
            assert!((w * x - 1.0).abs() < 1e-13, "{x}");
            assert!((k0e(x) / (k0(x) * x.exp()) - 1.0).abs() < 1e-13, "{x}");
        }
    }
}
