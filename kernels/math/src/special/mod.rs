//! Special functions in double precision.
//!
//! Methods and coefficients are those of the Cephes library (Stephen L. Moshier), which TensorFlow's kernels use as well.

mod cylinder;
mod incomplete;
mod integrals;

pub(crate) use cylinder::{j0, j1, k0, k0e, k1, k1e, y0, y1};
pub(crate) use incomplete::{betainc, igamma, igamma_derivative, igammac, polygamma, sample_derivative, zeta};
pub(crate) use integrals::{dawsn, expint, fresnel_cos, fresnel_sin, spence};

use std::f64::consts::PI;

/// The value of a polynomial with these coefficients, highest power first.
fn polynomial(x: f64, coefficients: &[f64]) -> f64 {
    coefficients.iter().fold(0.0, |sum, c| sum * x + c)
}

/// As [`polynomial`], with a leading coefficient of 1 that is not in the list.
fn monic(x: f64, coefficients: &[f64]) -> f64 {
    coefficients.iter().fold(1.0, |sum, c| sum * x + c)
}

/// The logarithm of the absolute value of the gamma function.
pub(crate) fn lgamma(x: f64) -> f64 {
    libm::lgamma(x)
}

/// The inverse of the distribution function of the standard normal distribution; infinite at 0 and 1, NaN beyond.
pub(crate) fn ndtri(p: f64) -> f64 {
    const P0: [f64; 5] = [
        -5.996_335_010_141_079e1,
        9.800_107_541_859_997e1,
        -5.667_628_574_690_703e1,
        1.393_126_093_872_794_4e1,
        -1.239_165_838_673_812_5,
    ];
    const Q0: [f64; 8] = [
        1.954_488_583_381_417_6,
        4.676_279_128_988_815,
        8.636_024_213_908_905e1,
        -2.254_626_878_541_193_7e2,
        2.002_602_123_800_606_6e2,
        -8.203_722_561_683_334e1,
        1.590_562_251_262_117e1,
        -1.183_316_211_213_300_9,
    ];
    const P1: [f64; 9] = [
        4.055_448_923_059_625,
        3.152_510_945_998_939e1,
        5.716_281_922_464_213e1,
        4.408_050_738_932_008e1,
        1.468_495_619_288_580_2e1,
        2.186_633_068_507_902_5,
        -1.402_560_791_713_545e-1,
        -3.504_246_268_278_482e-2,
        -8.574_567_851_546_854e-4,
    ];
    const Q1: [f64; 8] = [
        1.577_998_832_564_667_5e1,
        4.539_076_351_288_792e1,
        4.131_720_382_546_72e1,
        1.504_253_856_929_075e1,
        2.504_649_462_083_094,
        -1.421_829_228_547_877_9e-1,
        -3.808_064_076_915_783e-2,
        -9.332_594_808_954_574e-4,
    ];
    const P2: [f64; 9] = [
        3.237_748_917_769_460_3,
        6.915_228_890_689_842,
        3.938_810_252_924_744_4,
        1.333_034_608_158_075_5,
        2.014_853_895_491_790_8e-1,
        1.237_166_348_178_200_3e-2,
        3.015_815_535_082_354e-4,
        2.658_069_746_867_375_5e-6,
        6.239_745_391_849_833e-9,
    ];
    const Q2: [f64; 8] = [
        6.024_270_393_647_42,
        3.679_835_638_561_608_7,
        1.377_020_994_890_813_2,
        2.162_369_935_944_966e-1,
        1.342_040_060_885_431_8e-2,
        3.280_144_646_821_277_6e-4,
        2.892_478_647_453_807e-6,
        6.790_194_080_099_813e-9,
    ];
    const TAIL: f64 = 0.135_335_283_236_612_7;
    if p.is_nan() || !(0.0..=1.0).contains(&p) {
        return f64::NAN;
    }
    if p == 0.0 {
        return f64::NEG_INFINITY;
    }
    if p == 1.0 {
        return f64::INFINITY;
    }
    let upper = p > 1.0 - TAIL;
    let y = if upper { 1.0 - p } else { p };
    if y > TAIL {
        let y = y - 0.5;
        let square = y * y;
        let x = y + y * (square * polynomial(square, &P0) / monic(square, &Q0));
        return x * (2.0 * PI).sqrt();
    }
    let x = (-2.0 * y.ln()).sqrt();
    let x0 = x - x.ln() / x;
    let z = 1.0 / x;
    let x1 = if x < 8.0 { z * polynomial(z, &P1) / monic(z, &Q1) } else { z * polynomial(z, &P2) / monic(z, &Q2) };
    if upper { x0 - x1 } else { x1 - x0 }
}

/// The inverse of the error function; infinite at -1 and 1, NaN beyond.
pub(crate) fn erfinv(x: f64) -> f64 {
    let size = x.abs();
    let y = if size < 0.5 {
        // One Newton step recovers the digits that 0.5 * (x + 1) loses near 0.
        let y = ndtri(0.5 * (size + 1.0)) * std::f64::consts::FRAC_1_SQRT_2;
        let slope = 2.0 / PI.sqrt() * (-y * y).exp();
        y - (libm::erf(y) - size) / slope
    } else {
        // The upper tail is computed as the lower one, where small differences from 1 are kept.
        -ndtri(0.5 * (1.0 - size)) * std::f64::consts::FRAC_1_SQRT_2
    };
    y.copysign(x)
}

/// The derivative of the logarithm of the gamma function. NaN at the negative integers and at 0, as in TensorFlow.
pub(crate) fn digamma(x: f64) -> f64 {
    const A: [f64; 7] = [
        8.333_333_333_333_333e-2,
        -2.109_279_609_279_609_3e-2,
        7.575_757_575_757_576e-3,
        -4.166_666_666_666_667e-3,
        3.968_253_968_253_968e-3,
        -8.333_333_333_333_333e-3,
        8.333_333_333_333_333e-2,
    ];
    let mut x = x;
    let mut reflection = 0.0;
    if x <= 0.0 {
        let floor = x.floor();
        if x == floor {
            return f64::NAN;
        }
        // The distance to the nearest integer.
        let mut distance = x - floor;
        if distance == 0.5 {
            reflection = 0.0;
        } else {
            if distance > 0.5 {
                distance = x - (floor + 1.0);
            }
            reflection = PI / (PI * distance).tan();
        }
        x = 1.0 - x;
    }
    if x <= 10.0 && x == x.floor() {
        let sum: f64 = (1..x as u32).map(|i| 1.0 / f64::from(i)).sum();
        return sum - 0.577_215_664_901_532_9 - reflection;
    }
    let mut below = 0.0;
    while x < 10.0 {
        below += 1.0 / x;
        x += 1.0;
    }
    let series = if x < 1e17 {
        let z = 1.0 / (x * x);
        z * polynomial(z, &A)
    } else {
        0.0
    };
    x.ln() - 0.5 / x - series - below - reflection
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 4e-15 * b.abs().max(1e-300)
    }

    #[test]
    fn inverses_invert() {
        for x in [1e-300, 1e-20, 1e-3, 0.1, 0.3, 0.499, 0.5, 0.7, 0.95, 0.999_999] {
            assert!(close(libm::erf(erfinv(x)), x), "{x}");
            assert_eq!(erfinv(-x), -erfinv(x));
        }
        assert!(close(ndtri(0.975), 1.959_963_984_540_054));
        assert!((0.5 * libm::erfc(-ndtri(1e-300) * std::f64::consts::FRAC_1_SQRT_2) / 1e-300 - 1.0).abs() < 1e-12);
        assert_eq!((ndtri(0.0), ndtri(1.0), ndtri(0.5)), (f64::NEG_INFINITY, f64::INFINITY, 0.0));
        assert_eq!((erfinv(1.0), erfinv(-1.0), erfinv(0.0)), (f64::INFINITY, f64::NEG_INFINITY, 0.0));
        assert!(ndtri(-0.1).is_nan() && erfinv(1.1).is_nan());
    }

    #[test]
    fn digamma_at_known_points() {
        const EULER: f64 = 0.577_215_664_901_532_9;
        assert!(close(digamma(1.0), -EULER));
        assert!(close(digamma(0.5), -EULER - 2.0 * 2f64.ln()));
        assert!((digamma(-0.5) - 0.036_489_973_978_576_52).abs() < 1e-15);
        assert!(close(digamma(100.5), digamma(99.5) + 1.0 / 99.5));
        assert!(digamma(-2.0).is_nan() && digamma(0.0).is_nan());
    }
}
