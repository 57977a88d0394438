//! The ratio of two builds from paired measurements.
//!
//! The two measurements of a round are made one right after the other, so that what changes slowly on
//! the machine changes both. The logarithms of their ratios are taken as independent and normally
//! distributed, and the interval of their mean is Student's ("The Probable Error of a Mean",
//! Biometrika 6, 1908). The exponential of the mean is the geometric mean of the ratios, which does
//! not depend on which build is the numerator (Fleming and Wallace, "How not to lie with statistics",
//! Communications of the ACM 29(3), 1986).

/// The geometric mean of paired ratios, with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ratio {
    pub(super) mean: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Ratio {
    /// The ratios `new / old` of pairs `(old, new)`. None of fewer than two pairs, and none if a
    /// value is not positive.
    pub(super) fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        if pairs.len() < 2 || !pairs.iter().all(|(old, new)| positive(*old) && positive(*new)) {
            return None;
        }
        let logs: Vec<f64> = pairs.iter().map(|(old, new)| new.ln() - old.ln()).collect();
        let n = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / n;
        let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
        let half = student(logs.len() - 1) * (squares / (n - 1.0) / n).sqrt();
        Some(Self { mean: mean.exp(), low: (mean - half).exp(), high: (mean + half).exp() })
    }

    /// The same with the builds exchanged.
    pub(super) fn inverse(self) -> Self {
        Self { mean: 1.0 / self.mean, low: 1.0 / self.high, high: 1.0 / self.low }
    }
}

/// The 97.5th percentile of Student's distribution.
fn student(degrees_of_freedom: usize) -> f64 {
    /// For 1 to 9 degrees of freedom (NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2).
    const FEW: [f64; 9] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262];
    /// That of the normal distribution.
    const Z: f64 = 1.959_964;
    if let Some(value) = degrees_of_freedom.checked_sub(1).and_then(|i| FEW.get(i)) {
        return *value;
    }
    // Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5, its first three terms:
    // less than 0.001 off from ten degrees of freedom on.
    let n = degrees_of_freedom as f64;
    let (z3, z5, z7) = (Z.powi(3), Z.powi(5), Z.powi(7));
    Z + (z3 + Z) / (4.0 * n)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * Z) / (96.0 * n.powi(2))
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * Z) / (384.0 * n.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 0.001
    }

    /// Pairs around 1000 with a machine that becomes slower, and a change of one build with one
    /// percent of noise.
    fn pairs(change: f64) -> Vec<(f64, f64)> {
        let mut state = 1_u64;
        let mut noise = || {
            // Knuth's generator: the same noise in every run of the test.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((state >> 40) as f64 / (1_u64 << 24) as f64 - 0.5) * 0.02
        };
        let pair = |round: u32| {
            let speed = 1_000.0 - 20.0 * f64::from(round);
            (speed * (1.0 + noise()), speed * change * (1.0 + noise()))
        };
        (0..20).map(pair).collect()
    }

    #[test]
    fn percentiles_are_those_of_the_tables() {
        for (degrees, value) in [(1, 12.706), (9, 2.262), (10, 2.228), (19, 2.093), (30, 2.042)] {
            assert!(close(student(degrees), value), "{degrees}: {}", student(degrees));
        }
        assert!(close(student(120), 1.980));
    }

    #[test]
    fn a_known_result() {
        // Logarithms 0, 0.1, 0.2: mean 0.1, standard error 0.1 / sqrt 3, two degrees of freedom.
        let pairs = [0.0_f64, 0.1, 0.2].map(|log| (1.0, log.exp()));
        let ratio = Ratio::of(&pairs).unwrap();
        assert!(close(ratio.mean, 1.105_171), "{ratio:?}");
        assert!(close(ratio.low.ln(), 0.1 - 0.248_434), "{ratio:?}");
        assert!(close(ratio.high.ln(), 0.1 + 0.248_434), "{ratio:?}");
    }

    #[test]
    fn equal_values_have_the_ratio_one() {
        let ratio = Ratio::of(&[(5.0, 5.0), (9.0, 9.0)]).unwrap();
        assert_eq!((ratio.low, ratio.mean, ratio.high), (1.0, 1.0, 1.0));
    }

    #[test]
    fn the_interval_of_equal_builds_contains_one() {
        let ratio = Ratio::of(&pairs(1.0)).unwrap();
        assert!(ratio.low < 1.0 && 1.0 < ratio.high, "{ratio:?}");
    }

    #[test]
    fn a_change_of_ten_percent_is_found_in_one_percent_of_noise() {
        for change in [0.9, 1.1] {
            let ratio = Ratio::of(&pairs(change)).unwrap();
            assert!(ratio.low < change && change < ratio.high, "{ratio:?}");
            assert!(ratio.high - ratio.low < 0.02, "{ratio:?}");
        }
    }

    #[test]
    fn exchanged_builds_have_the_inverse_ratio() {
        let exchanged: Vec<(f64, f64)> = pairs(1.1).iter().map(|(old, new)| (*new, *old)).collect();
        let (ratio, inverse) = (Ratio::of(&pairs(1.1)).unwrap(), Ratio::of(&exchanged).unwrap());
        let inverse = inverse.inverse();
        assert!(close(ratio.mean, inverse.mean) && close(ratio.low, inverse.low));
        assert!(close(ratio.high, inverse.high));
    }

    #[test]
    fn what_has_no_ratio_is_none() {
        let not_positive =
            [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0), (f64::NAN, 1.0), (1.0, f64::INFINITY)];
        for pair in not_positive {
            assert_eq!(Ratio::of(&[(1.0, 1.0), pair]), None, "{pair:?}");
        }
        assert_eq!(Ratio::of(&[(1.0, 1.0)]), None, "one pair has no interval");
    }
}
