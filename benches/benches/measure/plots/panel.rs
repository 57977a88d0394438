//! Line charts with a legend, one or more beside each other in a file.

use plotters::{
    chart::{ChartBuilder, LabelAreaPosition, SeriesLabelPosition},
    coord::{
        Shift,
        ranged1d::{AsRangedCoord, Ranged, ValueFormatter},
    },
    drawing::{DrawingArea, IntoDrawingArea},
    element::{Circle, PathElement},
    prelude::{DashedLineSeries, IntoLogRange, LineSeries, SVGBackend},
    style::{BLACK, Color, RGBColor, WHITE},
};
use std::path::Path;

const WIDTH: u32 = 560;
const HEIGHT: u32 = 420;
const FONT: &str = "sans-serif";

#[derive(Clone, Copy, PartialEq)]
enum Scale {
    Linear,
    /// With this base.
    Log(f64),
}

#[derive(Clone, Copy)]
pub(super) struct Axis {
    title: &'static str,
    scale: Scale,
}

impl Axis {
    /// From zero.
    pub(super) fn linear(title: &'static str) -> Self {
        Self { title, scale: Scale::Linear }
    }

    pub(super) fn log(title: &'static str) -> Self {
        Self { title, scale: Scale::Log(10.0) }
    }

    pub(super) fn powers_of_two(title: &'static str) -> Self {
        Self { title, scale: Scale::Log(2.0) }
    }

    /// The ends of an axis that shows these values from end to end.
    fn around(self, values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
        let (least, most) = ends(values);
        match self.scale {
            Scale::Linear => (0.0, most * 1.05),
            Scale::Log(base) => (least / base.powf(0.12), most * base.powf(0.12)),
        }
    }

    /// The same with room for the legend above them.
    fn below_legend(self, values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
        let (least, most) = ends(values);
        match self.scale {
            Scale::Linear => (0.0, most * 1.5),
            Scale::Log(base) => (least / base.powf(0.2), most * base.powf(0.4)),
        }
    }
}

fn ends(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let least = values.clone().fold(f64::INFINITY, f64::min);
    (least, values.fold(f64::NEG_INFINITY, f64::max))
}

pub(super) struct Series {
    name: String,
    color: RGBColor,
    is_dashed: bool,
    points: Vec<(f64, f64)>,
}

impl Series {
    pub(super) fn solid(name: &str, color: RGBColor, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.to_owned(), color, is_dashed: false, points }
    }

    pub(super) fn dashed(name: &str, color: RGBColor, points: Vec<(f64, f64)>) -> Self {
        Self { is_dashed: true, ..Self::solid(name, color, points) }
    }
}

pub(super) struct Panel {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: Vec<Series>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws panels side by side. One without any point stays empty but for its title.
pub(super) fn draw_panels(path: &Path, panels: &[Panel]) {
    let root = SVGBackend::new(path, (WIDTH * panels.len() as u32, HEIGHT)).into_drawing_area();
    root.fill(&WHITE).unwrap();
    for (area, panel) in root.split_evenly((1, panels.len())).iter().zip(panels) {
        draw(area, panel);
    }
    root.present().unwrap();
}

fn draw(area: &Area<'_>, panel: &Panel) {
    let points = || panel.series.iter().flat_map(|series| &series.points);
    if points().next().is_none() {
        return;
    }
    let (left, right) = panel.x.around(points().map(|point| point.0));
    let (bottom, top) = panel.y.below_legend(points().map(|point| point.1));
    match (panel.x.scale, panel.y.scale) {
        (Scale::Linear, Scale::Linear) => chart(area, panel, left..right, bottom..top),
        (Scale::Log(base), Scale::Linear) => {
            chart(area, panel, (left..right).log_scale().base(base), bottom..top);
        }
        (Scale::Linear, Scale::Log(base)) => {
            chart(area, panel, left..right, (bottom..top).log_scale().base(base));
        }
        (Scale::Log(x), Scale::Log(y)) => {
            let y = (bottom..top).log_scale().base(y);
            chart(area, panel, (left..right).log_scale().base(x), y);
        }
    }
}

fn chart<X, Y>(area: &Area<'_>, panel: &Panel, x: X, y: Y)
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut builder = ChartBuilder::on(area);
    builder.margin(14).caption(&panel.title, (FONT, 18));
    builder.set_label_area_size(LabelAreaPosition::Bottom, 46);
    builder.set_label_area_size(LabelAreaPosition::Left, 66);
    let mut chart = builder.build_cartesian_2d(x, y).unwrap();
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(panel.x.title).y_desc(panel.y.title);
    mesh.axis_desc_style((FONT, 15)).label_style((FONT, 13));
    mesh.bold_line_style(RGBColor(225, 225, 225)).light_line_style(WHITE.mix(0.0));
    mesh.x_labels(8).y_labels(8);
    mesh.x_label_formatter(&|value| short(*value)).y_label_formatter(&|value| short(*value));
    mesh.draw().unwrap();
    for series in panel.series.iter().filter(|series| !series.points.is_empty()) {
        let (color, points) = (series.color, series.points.iter().copied());
        let style = color.stroke_width(2);
        let drawn = match series.is_dashed {
            true => chart.draw_series(DashedLineSeries::new(points.clone(), 6, 4, style)).unwrap(),
            false => chart.draw_series(LineSeries::new(points.clone(), style)).unwrap(),
        };
        let is_dashed = series.is_dashed;
        drawn.label(&series.name).legend(move |(x, y)| {
            let end = if is_dashed { x + 8 } else { x + 20 };
            PathElement::new(vec![(x, y), (end, y)], style)
        });
        chart.draw_series(points.map(|point| Circle::new(point, 4, color.filled()))).unwrap();
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.2))
        .label_font((FONT, 14))
        .draw()
        .unwrap();
}

/// As `20 k`.
fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{} M", v / 1e6),
        v if v >= 1e3 => format!("{} k", v / 1e3),
        v => format!("{v}"),
    }
}
