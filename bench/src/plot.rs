//! Plots: grouped bars as hand-written SVG, readable in any browser without scripts.

use std::fmt::Write as _;

use crate::report::number;

const WIDTH: f64 = 1_080.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 110.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 70.0;

/// Told apart by people with the usual kinds of colour blindness (after Okabe and Ito).
const COLOURS: [&str; 8] =
    ["#D55E00", "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#CC79A7", "#999999", "#000000"];

/// How heights follow values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// In proportion, from zero.
    Linear,
    /// By the power of ten: for values that differ by orders of magnitude.
    Log,
}

/// A chart of grouped bars.
#[derive(Debug)]
pub(crate) struct Chart {
    /// What is shown, for whom, and under which conditions.
    pub(crate) title: String,
    /// What the bars measure, with its unit.
    pub(crate) y_label: String,
    /// How heights follow values.
    pub(crate) scale: Scale,
    /// The names of the bars in each group: the legend.
    pub(crate) series: Vec<String>,
    /// Groups along the x axis: a name, and a value for each of the series.
    pub(crate) groups: Vec<(String, Vec<Option<f64>>)>,
}

impl Chart {
    /// The chart as an SVG document.
    pub(crate) fn to_svg(&self) -> String {
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
        );
        let title = escape(&self.title);
        let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"26\" font-size=\"16\">{title}</text>");
        self.draw_axes(&mut svg);
        self.draw_bars(&mut svg);
        self.draw_legend(&mut svg);
        svg += "</svg>\n";
        svg
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        self.groups.iter().flat_map(|(_, values)| values.iter().flatten().copied())
    }

    /// The values at the bottom and the top of the y axis.
    fn bounds(&self) -> (f64, f64) {
        let highest = self.values().fold(0.0, f64::max);
        match self.scale {
            Scale::Linear if highest > 0.0 => (0.0, highest * 1.05),
            Scale::Linear => (0.0, 1.0),
            Scale::Log => {
                let positive = self.values().filter(|value| *value > 0.0);
                let lowest = positive.fold(f64::INFINITY, f64::min);
                let lowest = if lowest.is_finite() { lowest } else { 1.0 };
                let bottom = 10_f64.powf(lowest.log10().floor());
                (bottom, 10_f64.powf(highest.max(bottom * 10.0).log10().ceil()))
            }
        }
    }

    fn y(&self, value: f64) -> f64 {
        let (low, high) = self.bounds();
        let share = match self.scale {
            Scale::Linear => (value - low) / (high - low),
            Scale::Log => (value.max(low) / low).log10() / (high / low).log10(),
        };
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    }

    fn ticks(&self) -> Vec<f64> {
        let (low, high) = self.bounds();
        match self.scale {
            Scale::Linear => {
                let rough = high / 5.0;
                let power = 10_f64.powf(rough.log10().floor());
                let fits = |step: &f64| step * power >= rough;
                let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(fits).unwrap_or(10.0) * power;
                let count = (high / step).floor() as usize;
                (0..=count).map(|tick| tick as f64 * step).collect()
            }
            Scale::Log => {
                let decades = (high / low).log10().round() as i32;
                (0..=decades).map(|decade| low * 10_f64.powi(decade)).collect()
            }
        }
    }

    fn draw_axes(&self, svg: &mut String) {
        let (right, floor) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for tick in self.ticks() {
            let (y, label_x) = (self.y(tick), LEFT - 8.0);
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{label_x}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                y + 4.0,
                escape(&number(tick))
            );
        }
        let middle = (TOP + floor) / 2.0;
        let label = escape(&self.y_label);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{TOP}\" x2=\"{LEFT}\" y2=\"{floor}\" stroke=\"black\"/>\
             <line x1=\"{LEFT}\" y1=\"{floor}\" x2=\"{right}\" y2=\"{floor}\" stroke=\"black\"/>\
             <text transform=\"translate(16 {middle}) rotate(-90)\" text-anchor=\"middle\">\
             {label}</text>"
        );
    }

    fn draw_bars(&self, svg: &mut String) {
        let floor = HEIGHT - BOTTOM;
        let group_width = (WIDTH - LEFT - RIGHT) / self.groups.len().max(1) as f64;
        let bar_width = group_width * 0.85 / self.series.len().max(1) as f64;
        for (place, (name, values)) in self.groups.iter().enumerate() {
            let left = LEFT + group_width * (place as f64 + 0.075);
            for (series, value) in values.iter().enumerate() {
                let Some(value) = value else { continue };
                let (x, y) = (left + bar_width * series as f64, self.y(*value));
                let _ = writeln!(
                    svg,
                    "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
                     fill=\"{}\"><title>{}: {}</title></rect>",
                    bar_width * 0.92,
                    floor - y,
                    COLOURS[series % COLOURS.len()],
                    escape(&self.series[series]),
                    escape(&number(*value))
                );
            }
            self.draw_group_name(svg, name, left + group_width * 0.425);
        }
    }

    /// The name below its group, one line for each line of the name.
    fn draw_group_name(&self, svg: &mut String, name: &str, x: f64) {
        for (line, text) in name.lines().enumerate() {
            let y = HEIGHT - BOTTOM + 18.0 + 15.0 * line as f64;
            let text = escape(text);
            let _ =
                writeln!(svg, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{text}</text>");
        }
    }

    fn draw_legend(&self, svg: &mut String) {
        let x = WIDTH - RIGHT + 16.0;
        for (series, name) in self.series.iter().enumerate() {
            let y = TOP + 20.0 * series as f64;
            let _ = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\" fill=\"{}\"/>\
                 <text x=\"{}\" y=\"{}\">{}</text>",
                COLOURS[series % COLOURS.len()],
                x + 18.0,
                y + 10.5,
                escape(name)
            );
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(scale: Scale, values: Vec<Option<f64>>) -> Chart {
        Chart {
            title: "gets & <swaps>".into(),
            y_label: "\"operations\" a second".into(),
            scale,
            series: values.iter().enumerate().map(|(i, _)| format!("store<{i}>")).collect(),
            groups: vec![("1 M\n2 threads".into(), values)],
        }
    }

    /// Heights of the bars, which are the rectangles that carry a title.
    fn heights(svg: &str) -> Vec<f64> {
        let document = roxmltree::Document::parse(svg).expect("a plot is valid XML");
        let bars = document.descendants().filter(|node| {
            node.has_tag_name("rect") && node.children().any(|child| child.has_tag_name("title"))
        });
        bars.map(|bar| bar.attribute("height").unwrap().parse().unwrap()).collect()
    }

    #[test]
    fn a_plot_is_valid_xml_whatever_the_names_hold() {
        let svg = chart(Scale::Linear, vec![Some(1.0), None, Some(3.0)]).to_svg();
        assert_eq!(heights(&svg).len(), 2, "what was not measured has no bar");
    }

    #[test]
    fn linear_bars_stand_in_proportion() {
        let heights = heights(&chart(Scale::Linear, vec![Some(1.0), Some(3.0)]).to_svg());
        assert!((heights[1] / heights[0] - 3.0).abs() < 0.01, "{heights:?}");
    }

    #[test]
    fn log_bars_grow_by_the_same_step_for_each_power_of_ten() {
        let values = vec![Some(20.0), Some(200.0), Some(2_000.0)];
        let heights = heights(&chart(Scale::Log, values).to_svg());
        let (first, second) = (heights[1] - heights[0], heights[2] - heights[1]);
        assert!((first - second).abs() < 0.3, "{heights:?}");
    }

    #[test]
    fn nothing_measured_is_still_a_plot() {
        for scale in [Scale::Linear, Scale::Log] {
            assert!(heights(&chart(scale, vec![None]).to_svg()).is_empty());
        }
    }
}
