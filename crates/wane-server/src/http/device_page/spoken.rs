//! Text of others as it is fit to be shown: of one line, in one direction, with nothing unseen.

/// The text without what cannot be seen, and no more than so many characters of it.
pub(super) fn visible(text: &str, most: usize) -> String {
    let mut seen = text.chars().filter(|c| !is_unseen(*c));
    let mut shown: String = seen.by_ref().take(most).collect();
    if seen.next().is_some() {
        shown.push_str("...");
    }
    shown
}

/// Control characters, ends of lines, what has no width, and what turns the direction of writing
/// around: the general categories Cc, Cf, Zl and Zp of Unicode.
pub(super) fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{AD}' | '\u{600}'..='\u{605}' | '\u{61C}' | '\u{6DD}' | '\u{70F}'
            | '\u{890}'..='\u{891}' | '\u{8E2}' | '\u{180E}' | '\u{200B}'..='\u{200F}'
            | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FEFF}'
            | '\u{FFF9}'..='\u{FFFB}' | '\u{110BD}' | '\u{110CD}' | '\u{13430}'..='\u{1343F}'
            | '\u{1BCA0}'..='\u{1BCA3}' | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E007F}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_left_out_and_what_is_long_is_cut() {
        let steered = "Demo\u{202E}\u{200B} \u{2066}TV\u{2028}\u{61C}\u{200F}\u{FEFF}\n!";
        assert_eq!(visible(steered, 80), "Demo TV!");
        assert_eq!(visible("caf\u{e9} \u{645}\u{631}", 80), "caf\u{e9} \u{645}\u{631}");
        assert_eq!(visible("abc", 3), "abc");
        assert_eq!(visible("abcd", 3), "abc...");
    }
}
