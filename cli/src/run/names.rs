//! Names that were probably meant.

/// How alike two names have to be, from 0 to 1.
const ALIKE: f64 = 0.7;
/// How many names are suggested.
const SUGGESTIONS: usize = 3;
/// A graph with this many names is listed whole where nothing is alike.
const FEW: usize = 8;

/// A text such as `; did you mean a or b?`, empty if nothing is near.
pub fn suggestion<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<&str> = names.collect();
    let mut alike: Vec<(f64, &str)> =
        all.iter().map(|&name| (likeness(wanted, name), name)).filter(|&(likeness, _)| likeness >= ALIKE).collect();
    alike.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    alike.truncate(SUGGESTIONS);
    let alike: Vec<&str> = alike.into_iter().map(|(_, name)| name).collect();
    match alike.as_slice() {
        [] if all.is_empty() || all.len() > FEW => String::new(),
        [] => format!("; there are: {}", all.join(", ")),
        [only] => format!("; did you mean {only}?"),
        [first @ .., last] => format!("; did you mean {} or {last}?", first.join(", ")),
    }
}

/// Names are alike in spelling, or one is the last part of the other.
fn likeness(wanted: &str, name: &str) -> f64 {
    let (wanted, name) = (wanted.to_lowercase(), name.to_lowercase());
    let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let whole = strsim::normalized_damerau_levenshtein(&wanted, &name);
    let parts = strsim::normalized_damerau_levenshtein(&last(&wanted), &last(&name));
    whole.max(parts * 0.9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_suggested() {
        let names = || ["dense/kernel", "dense/bias", "logits", "loss", "x"].into_iter();
        assert_eq!(suggestion("logit", names()), "; did you mean logits?");
        assert_eq!(suggestion("Loss", names()), "; did you mean loss?");
        assert_eq!(suggestion("kernel", names()), "; did you mean dense/kernel?");
        assert!(suggestion("quite/another", names()).starts_with("; there are: dense/kernel, "));
        let many: Vec<String> = (0..20).map(|n| format!("node{n}")).collect();
        assert_eq!(suggestion("quite", many.iter().map(String::as_str)), "");
        assert_eq!(suggestion("node_1", many.iter().map(String::as_str)), "; did you mean node1 or node11?");
    }
}
