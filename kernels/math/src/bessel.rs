//! Modified Bessel functions of the first kind, orders 0 and 1.
//!
//! Up to [`SERIES`] the power series (Abramowitz and Stegun 9.6.10), whose terms are all of one sign so that nothing cancels; above,
//! the asymptotic expansion (9.7.1), whose least term is far below the precision there.

/// The largest argument of the power series.
const SERIES: f64 = 30.0;

/// `exp(-|x|) I0(x)`.
pub(crate) fn i0e(x: f64) -> f64 {
    scaled(0, x.abs())
}

/// `exp(-|x|) I1(x)`.
pub(crate) fn i1e(x: f64) -> f64 {
    scaled(1, x.abs()).copysign(x)
}

/// `I0(x)`.
pub(crate) fn i0(x: f64) -> f64 {
    unscaled(0, x.abs())
}

/// `I1(x)`.
pub(crate) fn i1(x: f64) -> f64 {
    unscaled(1, x.abs()).copysign(x)
}

fn scaled(order: u32, x: f64) -> f64 {
    if x <= SERIES { series(order, x) * (-x).exp() } else { asymptotic(order, x) }
}

fn unscaled(order: u32, x: f64) -> f64 {
    if x <= SERIES {
        return series(order, x);
    }
    if x.is_infinite() {
        return x;
    }
    // In two factors, as the exponential alone overflows before the product does.
    let half = (x / 2.0).exp();
    asymptotic(order, x) * half * half
}

/// The sum of `(x/2)^(2k + order) / (k! (k + order)!)`.
fn series(order: u32, x: f64) -> f64 {
    let quarter = x * x / 4.0;
    let mut term = if order == 0 { 1.0 } else { x / 2.0 };
    let mut sum = term;
    let mut k = 1.0;
    while term > sum * f64::EPSILON / 4.0 {
        term *= quarter / (k * (k + f64::from(order)));
        sum += term;
        k += 1.0;
    }
    sum
}

fn asymptotic(order: u32, x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    let mu = 4.0 * f64::from(order * order);
    let mut term = 1.0f64;
    let mut sum = 1.0;
    let mut k = 1.0;
    loop {
        let odd = 2.0 * k - 1.0;
        let next = -term * (mu - odd * odd) / (8.0 * x * k);
        if next.abs() < f64::EPSILON / 4.0 || next.abs() >= term.abs() {
            return sum / (2.0 * std::f64::consts::PI * x).sqrt();
        }
        term = next;
        sum += term;
        k += 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of scipy 1.13 (`i0e`, `i1e`).
    const VALUES: [(f64, f64, f64); 6] = [
        (0.25, 0.7910171621397195, 0.0981126286973682),
        (1.0, 0.46575960759364043, 0.2079104153497085),
        (4.5, 0.1941982776283823, 0.17095882229749212),
        (12.0, 0.11642622121344044, 0.111464299290181),
        (29.5, 0.07376861727872859, 0.07250732615718372),
        (200.0, 0.028227159949111912, 0.028156503394832916),
    ];

    #[test]
    fn values_agree_with_tables() {
        for (x, zero, one) in VALUES {
            assert!((i0e(x) / zero - 1.0).abs() < 4e-15, "{x}");
            assert!((i1e(x) / one - 1.0).abs() < 4e-15, "{x}");
            assert_eq!(i0e(-x), i0e(x));
            assert_eq!(i1e(-x), -i1e(x));
        }
        assert_eq!((i0e(0.0), i1e(0.0)), (1.0, 0.0));
        assert!(i0e(f64::NAN).is_nan() && i1(f64::NAN).is_nan());
        assert_eq!(i0e(f64::INFINITY), 0.0);
        assert_eq!(i0(f64::INFINITY), f64::INFINITY);
    }

    #[test]
    fn both_methods_meet() {
        for order in [0, 1] {
            let (a, b) = (series(order, SERIES) * (-SERIES).exp(), asymptotic(order, SERIES));
            assert!((a / b - 1.0).abs() < 2e-14, "{a} {b}");
        }
    }
}
