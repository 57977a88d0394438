//! Figures as the tables show them.

/// Three figures, as `12.3 k`.
pub fn rate(rate: f64) -> String {
    match rate {
        r if r >= 1e6 => format!("{:.2} M", r / 1e6),
        r if r >= 1e5 => format!("{:.0} k", r / 1e3),
        r if r >= 1e4 => format!("{:.1} k", r / 1e3),
        r if r >= 1e3 => format!("{:.2} k", r / 1e3),
        r => format!("{r:.0}"),
    }
}

/// A part of one, as `47 %`.
pub fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

/// The middle one; of an even number, the larger of both.
pub fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    at(figures, 0.5)
}

/// The figure below which this part of all lies.
///
/// # Panics
/// If there are none.
pub fn at(figures: impl IntoIterator<Item = f64>, part: f64) -> f64 {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    assert!(!figures.is_empty(), "nothing was measured");
    figures.sort_unstable_by(f64::total_cmp);
    figures[(figures.len() as f64 * part) as usize]
}
