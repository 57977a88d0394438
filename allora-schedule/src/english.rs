//! Words of descriptions and phrases.

pub(crate) const WEEKDAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

pub(crate) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// `1st`, `2nd`, `3rd`, `11th`.
pub(crate) fn ordinal(number: u32) -> String {
    let suffix = match (number / 10 % 10, number % 10) {
        (1, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{number}{suffix}")
}

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [others @ .., last] => format!("{} and {last}", others.join(", ")),
    }
}

/// The values as items of a list, in which three or more in a row are `a to b`.
pub(crate) fn runs(values: &[u32], name: impl Fn(u32) -> String) -> Vec<String> {
    let mut items = Vec::new();
    let mut rest = values;
    while let [first, ..] = rest {
        let run = rest.iter().zip(*first..).take_while(|(value, next)| **value == *next).count();
        let (taken, item) = match run {
            1 | 2 => (1, name(*first)),
            run => (run, format!("{} to {}", name(*first), name(rest[run - 1]))),
        };
        items.push(item);
        rest = &rest[taken..];
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_lists_are_english() {
        let ordinals = [1, 2, 3, 4, 11, 12, 13, 21, 22, 23, 31].map(ordinal);
        assert_eq!(ordinals.join(" "), "1st 2nd 3rd 4th 11th 12th 13th 21st 22nd 23rd 31st");
        let listed = |values: &[u32]| list(&runs(values, |value| value.to_string()));
        assert_eq!(listed(&[]), "");
        assert_eq!(listed(&[5]), "5");
        assert_eq!(listed(&[5, 6]), "5 and 6");
        assert_eq!(listed(&[1, 2, 3, 5, 6, 8]), "1 to 3, 5, 6 and 8");
    }
}
