//! Floats of 8 and 4 bits: conversion from and to binary64, which holds every wider float exactly.

/// The rules of a small float format (Open Compute Project OFP8 and MX, and the `fnuz` variants of ml_dtypes).
#[derive(Clone, Copy)]
pub(crate) struct Format {
    pub bits: u32,
    pub mantissa: u32,
    pub bias: i32,
    pub special: Special,
}

/// What the format does with infinities and NaN.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Special {
    /// The top exponent holds infinities and NaNs, as in IEEE 754.
    Ieee,
    /// No infinities; NaN is all ones behind the sign.
    NanOnly,
    /// No infinities, no negative zero; NaN is the pattern that negative zero would have.
    NanIsNegativeZero,
    /// Neither infinities nor NaN.
    Finite,
}

impl Format {
    fn sign_bit(self) -> u8 {
        1 << (self.bits - 1)
    }

    fn magnitude_mask(self) -> u8 {
        self.sign_bit() - 1
    }

    fn nan(self) -> u8 {
        match self.special {
            Special::Ieee => (self.infinity()) | (1 << (self.mantissa - 1)),
            Special::NanOnly => self.magnitude_mask(),
            Special::NanIsNegativeZero => self.sign_bit(),
            // A cast of NaN to a format without one gives the negative zero of the hardware convention.
            Special::Finite => self.sign_bit(),
        }
    }

    fn infinity(self) -> u8 {
        let exponent_bits = self.bits - 1 - self.mantissa;
        (((1u32 << exponent_bits) - 1) << self.mantissa) as u8
    }

    /// The largest finite magnitude's bit pattern.
    fn largest(self) -> u8 {
        match self.special {
            Special::Ieee => self.infinity() - 1,
            Special::NanOnly => self.magnitude_mask() - 1,
            Special::NanIsNegativeZero | Special::Finite => self.magnitude_mask(),
        }
    }

    /// The value of a bit pattern; unused upper bits are ignored.
    pub fn decode(self, bits: u8) -> f64 {
        let sign = if bits & self.sign_bit() != 0 { -1.0 } else { 1.0 };
        let magnitude = bits & self.magnitude_mask();
        let is_nan = match self.special {
            Special::Ieee => magnitude > self.infinity(),
            Special::NanOnly => magnitude == self.magnitude_mask(),
            Special::NanIsNegativeZero => magnitude == 0 && sign < 0.0,
            Special::Finite => false,
        };
        if is_nan {
            return f64::NAN;
        }
        if self.special == Special::Ieee && magnitude == self.infinity() {
            return sign * f64::INFINITY;
        }
        let exponent = i32::from(magnitude >> self.mantissa);
        let fraction = f64::from(magnitude & ((1 << self.mantissa) - 1)) / f64::from(1u32 << self.mantissa);
        if exponent == 0 {
            sign * fraction * 2f64.powi(1 - self.bias)
        } else {
            sign * (1.0 + fraction) * 2f64.powi(exponent - self.bias)
        }
    }

    /// The bit pattern nearest to a value, ties to even. Too large: infinity where the format has one, else NaN where it has
    /// one, else the largest.
    pub fn encode(self, value: f64) -> u8 {
        let sign = if value.is_sign_negative() { self.sign_bit() } else { 0 };
        if value.is_nan() {
            return match self.special {
                Special::Ieee | Special::NanOnly => sign | self.nan(),
                Special::NanIsNegativeZero | Special::Finite => self.nan(),
            };
        }
        let magnitude = value.abs();
        let exponent = if magnitude == 0.0 { 1 - self.bias } else { magnitude.log2().floor().min(1023.0) as i32 }
            .max(1 - self.bias);
        // One unit in the last place at this exponent; scaling by a power of two is exact in binary64.
        let unit = 2f64.powi(exponent - self.mantissa as i32);
        let steps = (magnitude / unit).round_ties_even();
        let base = u32::try_from(exponent - (1 - self.bias)).unwrap_or(0) << self.mantissa;
        // A carry out of the mantissa moves on into the exponent by itself.
        let pattern = if steps.is_finite() { f64::from(base) + steps } else { f64::INFINITY };
        let overflow = pattern > f64::from(self.largest());
        match (overflow, self.special) {
            (true, Special::Ieee) => sign | self.infinity(),
            (true, Special::NanOnly) => sign | self.nan(),
            (true, Special::NanIsNegativeZero) => self.nan(),
            (true, Special::Finite) => sign | self.largest(),
            (false, Special::NanIsNegativeZero) if pattern == 0.0 => 0,
            (false, _) => sign | pattern as u8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMATS: [Format; 6] = [
        Format { bits: 8, mantissa: 2, bias: 15, special: Special::Ieee },
        Format { bits: 8, mantissa: 3, bias: 7, special: Special::NanOnly },
        Format { bits: 8, mantissa: 3, bias: 8, special: Special::NanIsNegativeZero },
        Format { bits: 8, mantissa: 3, bias: 11, special: Special::NanIsNegativeZero },
        Format { bits: 8, mantissa: 2, bias: 16, special: Special::NanIsNegativeZero },
        Format { bits: 4, mantissa: 1, bias: 1, special: Special::Finite },
    ];

    #[test]
    fn every_pattern_survives_a_round_trip() {
        for format in FORMATS {
            for bits in 0..=((1u16 << format.bits) - 1) as u8 {
                let value = format.decode(bits);
                if value.is_nan() {
                    assert!(format.decode(format.encode(value)).is_nan());
                } else {
                    assert_eq!(format.encode(value), bits, "{value}");
                }
            }
        }
    }

    #[test]
    fn halves_round_to_even_and_overflow_follows_the_format() {
        let e4m3fn = FORMATS[1];
        assert_eq!(e4m3fn.decode(e4m3fn.encode(17.0)), 16.0);
        assert_eq!(e4m3fn.decode(e4m3fn.encode(19.0)), 20.0);
        assert_eq!(e4m3fn.decode(e4m3fn.encode(448.0)), 448.0);
        assert!(e4m3fn.decode(e4m3fn.encode(480.0)).is_nan());
        assert_eq!(FORMATS[0].decode(FORMATS[0].encode(1e9)), f64::INFINITY);
        assert_eq!(FORMATS[5].decode(FORMATS[5].encode(100.0)), 6.0);
    }
}
