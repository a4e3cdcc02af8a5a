//! Names of strategies.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A strategy's id: the time of its making in UTC, as in `20210127T190440M012345` with microseconds at the end.
pub fn new_id(now: SystemTime) -> String {
    // No clock that a strategy is made under stands before 1970.
    let since = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let seconds = since.as_secs();
    let (year, month, day) = civil_date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}M{:06}", since.subsec_micros())
}

/// Year, month and day of a number of days since 1970-01-01, in the Gregorian calendar. Years begin in March here, so
/// that the leap day comes last: the day of the year then gives the month by a linear formula.
fn civil_date(days: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    const DAYS_FROM_YEAR_0: u64 = 719_468;
    let days = days + DAYS_FROM_YEAR_0;
    let era = days / DAYS_OF_400_YEARS;
    let day_of_era = days % DAYS_OF_400_YEARS;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_time_in_utc() {
        let at = |seconds, micros: u32| new_id(UNIX_EPOCH + Duration::new(seconds, micros * 1000));
        assert_eq!(at(1_611_774_280, 12_345), "20210127T190440M012345");
        assert_eq!(at(1_709_164_799, 999_999), "20240228T235959M999999");
        assert_eq!(at(1_709_164_800, 0), "20240229T000000M000000");
        assert_eq!(at(951_782_400, 0), "20000229T000000M000000");
    }
}
