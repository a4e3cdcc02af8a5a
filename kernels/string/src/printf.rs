//! Numbers as C's `printf` writes them.

/// One conversion of `printf`: flag, width, precision.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Spec {
    /// One of ` +-0#`.
    pub flag: Option<u8>,
    pub width: usize,
    pub precision: Option<usize>,
}

/// How a float is written.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Notation {
    /// `%f`
    Fixed,
    /// `%e`
    Scientific,
    /// `%g`
    Shortest,
}

impl Spec {
    /// An integer by its sign and digits. As flags come alone, `#` does nothing.
    pub fn integer(&self, negative: bool, signed: bool, digits: String) -> String {
        let sign = self.sign(negative, signed);
        // A precision takes the effect of 0 away; integers have none here.
        self.pad(sign, digits, self.flag == Some(b'0'))
    }

    fn sign(&self, negative: bool, signed: bool) -> &'static str {
        match self.flag {
            _ if negative => "-",
            Some(b'+') if signed => "+",
            Some(b' ') if signed => " ",
            _ => "",
        }
    }

    fn pad(&self, sign: &str, digits: String, zeros: bool) -> String {
        let length = sign.len() + digits.len();
        let missing = self.width.saturating_sub(length);
        if missing == 0 {
            format!("{sign}{digits}")
        } else if self.flag == Some(b'-') {
            format!("{sign}{digits}{}", " ".repeat(missing))
        } else if zeros {
            format!("{sign}{}{digits}", "0".repeat(missing))
        } else {
            format!("{}{sign}{digits}", " ".repeat(missing))
        }
    }

    /// A float.
    pub fn float(&self, value: f64, notation: Notation) -> String {
        let sign = self.sign(value.is_sign_negative(), true);
        if !value.is_finite() {
            let text = if value.is_nan() { "nan" } else { "inf" };
            return self.pad(sign, text.to_owned(), false);
        }
        let precision = self.precision.unwrap_or(6);
        let keeps = self.flag == Some(b'#');
        let digits = match notation {
            Notation::Fixed => fixed(value.abs(), precision, keeps),
            Notation::Scientific => scientific(value.abs(), precision, keeps),
            Notation::Shortest => general(value.abs(), precision, keeps),
        };
        self.pad(sign, digits, self.flag == Some(b'0'))
    }
}

fn fixed(value: f64, precision: usize, keeps: bool) -> String {
    let text = format!("{value:.precision$}");
    if keeps && precision == 0 { text + "." } else { text }
}

fn scientific(value: f64, precision: usize, keeps: bool) -> String {
    let text = format!("{value:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let point = if keeps && precision == 0 { "." } else { "" };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}{point}e{sign}{:02}", exponent.abs())
}

/// `%g`: as many significant digits as `precision` says, without zeros at the end unless `keeps`.
fn general(value: f64, precision: usize, keeps: bool) -> String {
    let digits = precision.max(1);
    let rounded = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = rounded.split_once('e').unwrap_or((&rounded, "0"));
    let exponent: i64 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| {
        let trims = !keeps && text.contains('.');
        if trims { text.trim_end_matches('0').trim_end_matches('.') } else { text }.to_owned()
    };
    if exponent < -4 || exponent >= digits as i64 {
        let sign = if exponent < 0 { '-' } else { '+' };
        let point = if keeps && digits == 1 { "." } else { "" };
        return format!("{}{point}e{sign}{:02}", trim(mantissa), exponent.abs());
    }
    let decimals = usize::try_from(digits as i64 - 1 - exponent).unwrap_or(0);
    trim(&fixed(value, decimals, keeps))
}

/// The shortest of `%.few g` and `%.many g` that reads back as the value, as TensorFlow writes numbers into texts.
pub(crate) fn round_trip(value: f64, few: usize, many: usize, reads_back: impl Fn(&str) -> bool) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    let shortest = |precision| Spec { precision: Some(precision), ..Spec::default() }.float(value, Notation::Shortest);
    let text = shortest(few);
    if value.is_infinite() || reads_back(&text) { text } else { shortest(many) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_are_those_of_c() {
        let plain = Spec::default();
        assert_eq!(plain.float(3.25, Notation::Fixed), "3.250000");
        assert_eq!(plain.float(-1e10, Notation::Scientific), "-1.000000e+10");
        assert_eq!(plain.float(1e-5, Notation::Shortest), "1e-05");
        assert_eq!(plain.float(100000.0, Notation::Shortest), "100000");
        assert_eq!(plain.float(f64::NEG_INFINITY, Notation::Fixed), "-inf");
        let wide = Spec { flag: Some(b'0'), width: 8, precision: Some(2) };
        assert_eq!(wide.float(-1.5, Notation::Fixed), "-0001.50");
        assert_eq!(wide.float(f64::NAN, Notation::Fixed), "     nan");
        assert_eq!(wide.integer(true, true, "42".into()), "-0000042");
        let pointed = Spec { flag: Some(b'#'), width: 0, precision: None };
        assert_eq!(pointed.float(100000.0, Notation::Shortest), "100000.");
        let left = Spec { flag: Some(b'-'), width: 5, precision: None };
        assert_eq!(left.integer(false, true, "42".into()), "42   ");
    }
}
