//! Patterns of paths.

use crate::FileSystem;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Paths that match, sorted. A pattern without special characters stands for itself, if there is such a file.
pub(crate) fn matching(files: &dyn FileSystem, pattern: &Path) -> Vec<Vec<u8>> {
    let bytes = pattern.as_os_str().as_bytes();
    let mut found = Vec::new();
    if !bytes.iter().any(|b| b"*?[\\".contains(b)) {
        if files.is_directory(pattern).is_some() {
            found.push(bytes.to_vec());
        }
        return found;
    }
    let parts: Vec<&[u8]> = bytes.split(|&b| b == b'/').collect();
    walk(files, Vec::new(), &parts, &mut found);
    found.sort();
    found
}

/// Adds the paths below `prefix` (which ends in `/` or is empty) that match the remaining parts.
fn walk(files: &dyn FileSystem, prefix: Vec<u8>, parts: &[&[u8]], found: &mut Vec<Vec<u8>>) {
    let Some((part, rest)) = parts.split_first() else { return };
    let mut next = |name: &[u8]| {
        let mut path = prefix.clone();
        path.extend_from_slice(name);
        let kind = files.is_directory(Path::new(OsStr::from_bytes(&path)));
        if rest.is_empty() {
            if kind.is_some() {
                found.push(path);
            }
        } else if kind == Some(true) || name.is_empty() {
            path.push(b'/');
            walk(files, path, rest, found);
        }
    };
    if !part.iter().any(|b| b"*?[\\".contains(b)) {
        next(part);
        return;
    }
    let directory = if prefix.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(&prefix)) };
    for name in files.list(directory).unwrap_or_default() {
        if matches(part, name.as_bytes()) {
            next(name.as_bytes());
        }
    }
}

/// Whether a name matches a pattern with `*`, `?`, `[a-z]`, `[!a-z]` and `\x`, as `fnmatch` has them.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // Where to go on if a mismatch comes behind a star: one more byte for that star.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let step = match pattern.get(p) {
            None => (n == name.len()).then_some((p, n)),
            Some(b'*') => {
                retry = Some((p, n));
                Some((p + 1, n))
            }
            Some(_) => name.get(n).and_then(|&byte| one(pattern, p, byte)).map(|p| (p, n + 1)),
        };
        match (step, retry) {
            (Some(_), _) if p == pattern.len() => return true,
            (Some((next_p, next_n)), _) => (p, n) = (next_p, next_n),
            (None, Some((star, from))) if from < name.len() => {
                retry = Some((star, from + 1));
                (p, n) = (star + 1, from + 1);
            }
            (None, _) => return false,
        }
    }
}

/// Matches one byte at a place of the pattern; the place behind it if that went well.
fn one(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match pattern.get(at)? {
        b'?' => Some(at + 1),
        b'\\' => match pattern.get(at + 1) {
            Some(&escaped) => (escaped == byte).then_some(at + 2),
            None => (byte == b'\\').then_some(at + 1),
        },
        b'[' => match class(pattern, at + 1, byte) {
            Some((inside, end)) => inside.then_some(end),
            None => (byte == b'[').then_some(at + 1),
        },
        &plain => (plain == byte).then_some(at + 1),
    }
}

/// Whether a byte is in the class that starts at `at`, and where the pattern goes on; `None` if the class has no end.
fn class(pattern: &[u8], mut at: usize, byte: u8) -> Option<(bool, usize)> {
    let negated = matches!(pattern.get(at)?, b'!' | b'^');
    at += usize::from(negated);
    let start = at;
    let mut inside = false;
    loop {
        let mut low = *pattern.get(at)?;
        if low == b']' && at > start {
            return Some((inside != negated, at + 1));
        }
        if low == b'\\' {
            at += 1;
            low = *pattern.get(at)?;
        }
        let ranged = pattern.get(at + 1) == Some(&b'-') && pattern.get(at + 2).is_some_and(|&b| b != b']');
        let high = if ranged { *pattern.get(at + 2)? } else { low };
        inside |= (low..=high).contains(&byte);
        at += if ranged { 3 } else { 1 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LocalFileSystem;

    #[test]
    fn names_match_patterns() {
        for (pattern, name, expected) in [
            ("*", "anything", true),
            ("a*c", "abbc", true),
            ("a*c", "abb", false),
            ("*.rec*", "x.rec-0", true),
            ("?", "", false),
            ("a?c", "abc", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]", "]", true),
            ("[a", "[a", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a**b*c", "axxbyyc", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn patterns_walk_directories() {
        let directory = tempfile::tempdir().unwrap();
        for path in ["a/1.txt", "a/2.txt", "b/1.txt", "b/x.bin"] {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, b"").unwrap();
        }
        let files = LocalFileSystem::new();
        let find = |pattern: &str| -> Vec<String> {
            let found = matching(&files, &directory.path().join(pattern));
            let prefix = directory.path().as_os_str().len() + 1;
            found.into_iter().map(|path| String::from_utf8(path[prefix..].to_vec()).unwrap()).collect()
        };
        assert_eq!(find("*/1.txt"), ["a/1.txt", "b/1.txt"]);
        assert_eq!(find("b/*"), ["b/1.txt", "b/x.bin"]);
        assert_eq!(find("a/1.txt"), ["a/1.txt"]);
        assert_eq!(find("c/*"), [""; 0]);
        assert_eq!(find("a/3.txt"), [""; 0]);
    }
}
