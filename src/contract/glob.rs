//! Globs over short names: SoCs and sites.

/// Whether `text` matches `pattern`, where `*` stands for any run of characters (also none) and `?` for one.
///
/// Everything else stands for itself; case matters.
pub fn glob_matches(pattern: &str, text: &str) -> bool {
    // Greedy with one point to return to. When a later `*` is reached, what an earlier one took no longer matters: the
    // later one can make up for it. So a mismatch only ever lengthens what the latest `*` took, and the whole is at most
    // pattern × text steps.
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == '?' || c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((after, taken)) => {
                    star = Some((after, taken + 1));
                    p = after + 1;
                    t = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == '*')
}
