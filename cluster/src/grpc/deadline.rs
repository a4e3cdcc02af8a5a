//! The `grpc-timeout` header.

use http::{HeaderMap, HeaderValue};
use std::time::Duration;

/// The time that the caller grants: at most eight digits and a unit. A malformed header counts as absent.
pub(super) fn timeout(headers: &HeaderMap) -> Option<Duration> {
    parse(headers.get("grpc-timeout")?.to_str().ok()?)
}

/// The header for a time, rounded up to milliseconds.
pub(super) fn header(timeout: Duration) -> HeaderValue {
    const MOST: u128 = 99_999_999;
    let milliseconds = timeout.as_nanos().div_ceil(1_000_000);
    let (amount, unit) =
        if milliseconds <= MOST { (milliseconds, 'm') } else { ((milliseconds / 1000).min(MOST), 'S') };
    // Digits and a letter are always a header.
    HeaderValue::from_str(&format!("{amount}{unit}")).unwrap_or_else(|_| HeaderValue::from_static("99999999S"))
}

fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(amount * 3600),
        "M" => Duration::from_secs(amount * 60),
        "S" => Duration::from_secs(amount),
        "m" => Duration::from_millis(amount),
        "u" => Duration::from_micros(amount),
        "n" => Duration::from_nanos(amount),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        for (text, expected) in [
            ("1H", Duration::from_secs(3600)),
            ("2M", Duration::from_secs(120)),
            ("3S", Duration::from_secs(3)),
            ("700m", Duration::from_millis(700)),
            ("5u", Duration::from_micros(5)),
            ("99999999n", Duration::from_nanos(99_999_999)),
        ] {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn headers_grant_at_least_the_time() {
        for (timeout, expected) in [
            (Duration::ZERO, "0m"),
            (Duration::from_nanos(1), "1m"),
            (Duration::from_millis(1500), "1500m"),
            (Duration::from_secs(200_000), "200000S"),
            (Duration::MAX, "99999999S"),
        ] {
            assert_eq!(header(timeout), expected);
        }
    }

    #[test]
    fn malformed_timeouts_are_no_timeouts() {
        for text in ["", "S", "1", "-1S", "+1S", "1 S", "123456789S", "1x", "1é", "é"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
