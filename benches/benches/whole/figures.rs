//! The line that is printed.

use crate::FORMAT;

/// Which of two values is the better one.
#[derive(Clone, Copy)]
pub(crate) enum Better {
    More,
    Less,
}

/// One measured value. Names and units have no characters that JSON would escape.
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    pub(crate) value: f64,
}

impl Figure {
    pub(crate) fn rate(name: String, value: f64) -> Self {
        Self { name, unit: "/s", better: Better::More, value }
    }

    fn json(&self) -> String {
        let better = match self.better {
            Better::More => "more",
            Better::Less => "less",
        };
        let Self { name, unit, value, .. } = self;
        // JSON has no word for what is not a number.
        assert!(value.is_finite() && *value > 0.0, "{name}: {value}{unit} is not a measurement");
        format!(r#"{{"name":"{name}","unit":"{unit}","better":"{better}","value":{value}}}"#)
    }
}

pub(crate) fn line(store: &str, figures: &[Figure]) -> String {
    let figures: Vec<String> = figures.iter().map(Figure::json).collect();
    format!(r#"{{"format":{FORMAT},"store":"{store}","figures":[{}]}}"#, figures.join(","))
}
