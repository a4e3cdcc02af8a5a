//! Patterns in the syntax of RE2, by way of the `regex` crate, whose matches are the same but whose syntax differs in places.

use graphmill_tensor::{Result, invalid_argument};
use regex::bytes::{Regex, RegexBuilder};

/// The largest memory of a compiled pattern; RE2's limit is of this order.
const SIZE_LIMIT: usize = 8 << 20;

/// A compiled pattern, for matches anywhere and of whole texts.
pub(crate) struct Pattern {
    anywhere: Regex,
    whole: Regex,
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` with RE2's reason where it is a common one.
    pub fn new(pattern: &[u8]) -> Result<Pattern> {
        let text = String::from_utf8_lossy(pattern);
        let fail = |reason: &str| invalid_argument!("Invalid pattern: {text}, error: {reason}");
        if std::str::from_utf8(pattern).is_err() {
            return Err(fail("invalid UTF-8"));
        }
        let translated = translate(&text).map_err(|reason| fail(&reason))?;
        let compile = |text: &str| {
            let built = RegexBuilder::new(text).size_limit(SIZE_LIMIT).build();
            built.map_err(|error| fail(&reason(&error.to_string())))
        };
        let anywhere = compile(&translated)?;
        let whole = compile(&format!("\\A(?:{translated})\\z"))?;
        Ok(Pattern { anywhere, whole })
    }

    /// Whether the whole text matches.
    pub fn is_full_match(&self, text: &[u8]) -> bool {
        self.whole.is_match(text)
    }

    /// The text with its first match replaced, or all of them.
    pub fn replace(&self, text: &[u8], rewrite: &[u8], global: bool) -> Option<Vec<u8>> {
        let pieces = pieces(rewrite, self.anywhere.captures_len())?;
        let mut out = Vec::new();
        let (mut at, mut last_end, mut found) = (0, None, false);
        while at <= text.len() {
            let Some(captures) = self.anywhere.captures_at(text, at) else { break };
            let Some(whole) = captures.get(0) else { break };
            out.extend_from_slice(&text[at..whole.start()]);
            at = whole.start();
            if whole.is_empty() && last_end == Some(whole.start()) {
                // There is no empty match at the end of another one; on to the next character.
                let next = (at + 1..text.len()).find(|&i| text[i] & 0xc0 != 0x80).unwrap_or(text.len());
                out.extend_from_slice(text.get(at..next).unwrap_or_default());
                at = if at < text.len() { next } else { at + 1 };
                continue;
            }
            found = true;
            for piece in &pieces {
                match piece {
                    Piece::Text(literal) => out.extend_from_slice(literal),
                    Piece::Group(n) => out.extend(captures.get(*n).map(|m| m.as_bytes()).unwrap_or_default()),
                }
            }
            at = whole.end();
            last_end = Some(at);
            if !global {
                break;
            }
        }
        if !found {
            return None;
        }
        out.extend_from_slice(text.get(at..).unwrap_or_default());
        Some(out)
    }
}

enum Piece {
    Text(Vec<u8>),
    Group(usize),
}

/// A rewrite in RE2's syntax: `\0` to `\9` are groups, `\\` a backslash. Nothing is replaced by one that is wrong.
fn pieces(rewrite: &[u8], groups: usize) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut literal = Vec::new();
    let mut rest = rewrite.iter();
    while let Some(&byte) = rest.next() {
        if byte != b'\\' {
            literal.push(byte);
            continue;
        }
        match rest.next()? {
            b'\\' => literal.push(b'\\'),
            digit if digit.is_ascii_digit() => {
                let group = usize::from(digit - b'0');
                if group >= groups {
                    return None;
                }
                pieces.push(Piece::Text(std::mem::take(&mut literal)));
                pieces.push(Piece::Group(group));
            }
            _ => return None,
        }
    }
    pieces.push(Piece::Text(literal));
    Some(pieces)
}

fn reason(error: &str) -> String {
    let known = [
        ("unclosed character class", "missing ]"),
        ("unclosed group", "missing )"),
        ("unopened group", "unexpected )"),
        ("repetition operator missing expression", "no argument for repetition operator"),
        ("unrecognized escape sequence", "invalid escape sequence"),
        ("invalid character class range", "invalid character class range"),
        ("compiled regex exceeds size limit", "pattern too large - compile failed"),
    ];
    let found = known.iter().find(|(ours, _)| error.to_lowercase().contains(ours)).map(|(_, theirs)| *theirs);
    found.map_or_else(|| error.lines().last().unwrap_or_default().to_owned(), str::to_owned)
}

/// A pattern of RE2 in the syntax of the `regex` crate.
fn translate(pattern: &str) -> Result<String, String> {
    let mut out = String::with_capacity(pattern.len());
    let chars: Vec<char> = pattern.chars().collect();
    let mut at = 0;
    let mut class = None;
    // Whether what stands before is repeated already.
    let mut repeated = false;
    while let Some(&c) = chars.get(at) {
        at += 1;
        if c == '(' && class.is_none() && chars.get(at) == Some(&'?') {
            // What opens a group is no operator.
            out.push_str("(?");
            at += 1;
            repeated = false;
            continue;
        }
        match (c, class) {
            ('\\', _) => at = escape(&chars, at, class.is_some(), &mut out)?,
            ('[', None) => {
                class = Some(at - 1);
                out.push('[');
                if chars.get(at) == Some(&'^') {
                    out.push('^');
                    at += 1;
                }
                // A bracket that comes first is a member.
                if chars.get(at) == Some(&']') {
                    out.push_str("\\]");
                    at += 1;
                }
            }
            ('[', Some(_)) if chars.get(at) == Some(&':') => out.push('['),
            ('[', Some(_)) => out.push_str("\\["),
            (':', Some(_)) if chars.get(at) == Some(&']') && out.contains("[:") && is_named(&chars, at) => {
                out.push_str(":]");
                at += 1;
            }
            (']', Some(_)) => {
                class = None;
                out.push(']');
            }
            ('&' | '~', Some(_)) => {
                out.push('\\');
                out.push(c);
            }
            // A range needs its dash; two dashes would be a difference of sets.
            ('-', Some(_)) if chars.get(at) == Some(&'-') => out.push_str("\\-"),
            ('{', None) if !is_repetition(&chars, at) => out.push_str("\\{"),
            ('*' | '+' | '?' | '{', None) => {
                let end = operator_end(&chars, at - 1);
                let operator: String = chars[at - 1..end].iter().collect();
                if repeated {
                    return Err(format!("bad repetition operator: {}{operator}", last_operator(&chars, at - 1)));
                }
                check_repetition(&operator)?;
                out.push_str(&operator);
                at = end;
                repeated = true;
                continue;
            }
            ('}', None) if !out.contains('{') => out.push_str("\\}"),
            (c, _) => out.push(c),
        }
        repeated = false;
    }
    match class {
        Some(start) => Err(format!("missing ]: {}", chars.iter().skip(start).collect::<String>())),
        None => Ok(out),
    }
}

/// The end of the repetition operator at `start`, with the question mark that makes it lazy.
fn operator_end(chars: &[char], start: usize) -> usize {
    let braced = chars.get(start) == Some(&'{');
    let length = if braced { chars[start..].iter().position(|&c| c == '}').map_or(1, |end| end + 1) } else { 1 };
    let end = start + length;
    end + usize::from(chars.get(end) == Some(&'?'))
}

/// The operator that ends before `end`, for an error.
fn last_operator(chars: &[char], end: usize) -> String {
    let start = match chars[..end].iter().rposition(|&c| c == '{') {
        Some(open) if chars.get(end - 1) == Some(&'}') => open,
        _ => end.saturating_sub(1),
    };
    chars[start..end].iter().collect()
}

/// RE2 repeats no more than this.
const MOST_REPEATS: u32 = 1000;

fn check_repetition(operator: &str) -> Result<(), String> {
    let counts = operator.trim_matches(|c: char| !c.is_ascii_digit()).split(',').filter(|count| !count.is_empty());
    let counts: Vec<Option<u32>> = counts.map(|count| count.parse().ok().filter(|&n| n <= MOST_REPEATS)).collect();
    if counts.contains(&None) || counts.is_sorted_by(|a, b| a <= b).then_some(()).is_none() {
        return Err(format!("invalid repetition size: {}", operator.trim_end_matches('?')));
    }
    Ok(())
}

/// Whether the colon before `at` ends a name such as `[:alpha:]`.
fn is_named(chars: &[char], at: usize) -> bool {
    let name = chars[..at.saturating_sub(1)].iter().rev().take_while(|c| c.is_ascii_lowercase() || **c == '^').count();
    let start = at.saturating_sub(1 + name);
    name > 0 && start >= 2 && chars[start - 1] == ':' && chars[start - 2] == '['
}

/// Whether what follows a brace is a repetition such as `2,5}`.
fn is_repetition(chars: &[char], at: usize) -> bool {
    let Some(length) = chars[at..].iter().position(|&c| c == '}') else { return false };
    let inner = &chars[at..at + length];
    let mut parts = inner.split(|&c| c == ',');
    let first = parts.next().is_some_and(|p| !p.is_empty() && p.iter().all(char::is_ascii_digit));
    let second = parts.next().is_none_or(|p| p.iter().all(char::is_ascii_digit));
    first && second && parts.next().is_none()
}

/// An escape; `at` is behind the backslash. Gives the position behind the escape.
fn escape(chars: &[char], at: usize, in_class: bool, out: &mut String) -> Result<usize, String> {
    let Some(&c) = chars.get(at) else { return Err("trailing \\".to_owned()) };
    // RE2's classes of characters are those of ASCII.
    let members = match c.to_ascii_lowercase() {
        'd' => "0-9",
        's' => "\\t\\n\\f\\r ",
        'w' => "0-9A-Za-z_",
        _ => "",
    };
    match c {
        'd' | 's' | 'w' if in_class => out.push_str(members),
        'd' | 's' | 'w' => out.push_str(&format!("[{members}]")),
        'D' | 'S' | 'W' => out.push_str(&format!("[^{members}]")),
        'b' | 'B' if !in_class => out.push_str(&format!("(?-u:\\{c})")),
        'C' => out.push_str("(?s-u:.)"),
        'Q' => {
            let rest: String = chars[at + 1..].iter().collect();
            let literal = rest.split("\\E").next().unwrap_or_default();
            out.push_str(&regex::escape(literal));
            let end = at + 1 + literal.chars().count();
            return Ok((end + 2).min(chars.len()));
        }
        '0'..='7' => {
            let digits = chars[at..].iter().take(3).take_while(|c| ('0'..='7').contains(*c)).count();
            if c != '0' && digits == 1 {
                return Err(format!("invalid escape sequence: \\{c}"));
            }
            let text: String = chars[at..at + digits].iter().collect();
            let code = u32::from_str_radix(&text, 8).unwrap_or(0);
            out.push_str(&format!("\\x{{{code:x}}}"));
            return Ok(at + digits);
        }
        'A' | 'z' | 'a' | 'f' | 'n' | 'r' | 't' | 'v' | 'x' | 'p' | 'P' => {
            out.push('\\');
            out.push(c);
            // The name of a class, or the number of a character, comes in braces.
            if matches!(c, 'p' | 'P' | 'x') && chars.get(at + 1) == Some(&'{') {
                let length = chars[at + 1..].iter().position(|&c| c == '}').map_or(0, |end| end + 1);
                out.extend(&chars[at + 1..at + 1 + length]);
                return Ok(at + 1 + length);
            }
        }
        c if c.is_ascii_alphanumeric() => return Err(format!("invalid escape sequence: \\{c}")),
        '<' | '>' => out.push(c),
        c if c.is_ascii_punctuation() => {
            out.push('\\');
            out.push(c);
        }
        c => out.push(c),
    }
    Ok(at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(pattern: &str, text: &str, rewrite: &str) -> String {
        let out = Pattern::new(pattern.as_bytes()).unwrap().replace(text.as_bytes(), rewrite.as_bytes(), true);
        String::from_utf8(out.unwrap_or_else(|| text.into())).unwrap()
    }

    #[test]
    fn replacements_are_those_of_re2() {
        assert_eq!(replaced("a*", "baac", "x"), "xbxcx");
        assert_eq!(replaced("(a+)(b)", "aab", "\\2\\1\\\\"), "baa\\");
        assert_eq!(replaced("a", "banana", "\\7"), "banana");
        assert_eq!(replaced("", "é!", "-"), "-é-!-");
    }

    #[test]
    fn syntax_is_that_of_re2() {
        let full = |pattern: &str, text: &str| Pattern::new(pattern.as_bytes()).unwrap().is_full_match(text.as_bytes());
        assert!(full("a{,2}", "a{,2}"));
        assert!(full("[[a]+", "[a"));
        assert!(full("[[:alpha:]&&b]+", "x&b"));
        assert!(full("\\d+", "12") && !full("\\d", "\u{0663}"));
        assert!(full("\\Qa.b\\E+", "a.bb"));
        assert!(full("\\<\\>", "<>"));
        assert!(full("\\p{Ll}\\x{41}", "aA"));
        assert!(!full("a|ab", "abc") && full("a|ab", "ab"));
        for bad in ["a**", "a{1001}", "*a", "a{3,2}", "(?P<n", "\\8"] {
            assert!(Pattern::new(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(full("a*?b", "aab") && full("(?:a+)*", "aa") && full("(?i)A{2}?", "aA"));
        let error = Pattern::new(b"A[").err().unwrap();
        assert_eq!(error.message(), "Invalid pattern: A[, error: missing ]: [");
    }
}
