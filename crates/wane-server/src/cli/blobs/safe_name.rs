//! The file name of a BLOB whose name somebody else chose.
//!
//! It is one component of a path, no hidden file, and short enough to be followed by `.part`: so it
//! is in the directory where it is asked for and means nothing to shells and programs there.

/// Bytes of a name that file systems take, without those of `.part`.
const LONGEST: usize = 255 - 5;

/// The name as that of a file; `otherwise` where nothing is left of it.
pub(super) fn safe_name(name: &str, otherwise: &str) -> String {
    let safe = |c: char| if c.is_control() || matches!(c, '/' | '\\') { '_' } else { c };
    let mut safe: String = name.chars().map(safe).collect();
    let dots = safe.len() - safe.trim_start_matches('.').len();
    safe.replace_range(..dots, &"_".repeat(dots));
    let end = (0..=LONGEST.min(safe.len())).rev().find(|end| safe.is_char_boundary(*end));
    safe.truncate(end.unwrap_or_default());
    if safe.trim().is_empty() { otherwise.to_owned() } else { safe }
}

#[cfg(test)]
mod tests {
    use std::path::{Component, Path};

    use super::*;

    #[test]
    fn names_stay_where_they_are_put() {
        for (name, safe) in [
            ("report.pdf", "report.pdf"),
            ("caf\u{e9} \"x\".txt", "caf\u{e9} \"x\".txt"),
            ("../../etc/passwd", "___.._etc_passwd"),
            ("/etc/passwd", "_etc_passwd"),
            ("..", "__"),
            (".", "_"),
            (".bashrc", "_bashrc"),
            ("a\\b", "a_b"),
            ("a\nb\u{1b}[2J\0", "a_b_[2J_"),
            ("", "id"),
            ("  ", "id"),
            ("-", "-"),
        ] {
            assert_eq!(safe_name(name, "id"), safe, "{name:?}");
        }
    }

    #[test]
    fn every_name_is_one_component_of_a_path() {
        let long = "\u{e9}".repeat(200);
        for name in ["a/../b", "....//", "/", "\\\\x", "./a", &long, "\u{2028}", "CON"] {
            let safe = safe_name(name, "id");
            let parts: Vec<_> = Path::new(&safe).components().collect();
            assert!(matches!(parts[..], [Component::Normal(_)]), "{name:?}: {safe:?}");
            assert!(safe.len() <= LONGEST, "{name:?}");
        }
    }
}
