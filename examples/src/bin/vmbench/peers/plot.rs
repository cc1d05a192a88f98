//! A plot of round trips by the size of the message, as SVG: their times on the left, their
//! throughput on the right, both axes logarithmic. The colours follow the reader's preference for
//! light or dark.

use std::{collections::BTreeSet, fmt::Write, ops::Range};

/// Width and height of the picture, and of the axes of a panel. Pixels.
const PICTURE: [f64; 2] = [920.0, 400.0];
const PANEL: [f64; 2] = [360.0, 280.0];
/// The left edges of the two panels, and the upper edge of both.
const LEFT: [f64; 2] = [70.0, 530.0];
const TOP: f64 = 50.0;
/// Distance of two names in the legend.
const NAME_WIDTH: f64 = 180.0;
/// Number of lines that have a colour of their own.
const COLOURS: usize = 4;
const MIB: f64 = (1 << 20) as f64;

const STYLE: &str = "
  svg { font: 12px sans-serif; }
  .back { fill: #ffffff; } text { fill: #333333; } .grid { stroke: #dddddd; }
  .c0 { color: #c2410c; } .c1 { color: #1d4ed8; } .c2 { color: #15803d; } .c3 { color: #7e22ce; }
  polyline { fill: none; stroke: currentColor; stroke-width: 2; } circle { fill: currentColor; }
  @media (prefers-color-scheme: dark) {
    .back { fill: #1b1b1f; } text { fill: #dddddd; } .grid { stroke: #3f3f46; }
    .c0 { color: #fb923c; } .c1 { color: #60a5fa; } .c2 { color: #4ade80; } .c3 { color: #c084fc; }
  }
";

/// The round trips of one side.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The name in the legend.
    pub name: String,
    /// Size of the message in bytes, and microseconds of the round trip. Both above 0.
    pub points: Vec<(f64, f64)>,
}

/// The picture of these lines.
pub fn svg(lines: &[Line]) -> String {
    let throughput = Vec::from_iter(lines.iter().map(|line| Line {
        name: line.name.clone(),
        points: Vec::from_iter(line.points.iter().map(|(bytes, micros)| {
            // The bytes go there and back.
            (*bytes, 2.0 * bytes / MIB / (micros / 1e6))
        })),
    }));
    let [width, height] = PICTURE;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         role=\"img\">\n<title>Round trips by the size of the message</title>\n\
         <style>{STYLE}</style>\n<rect class=\"back\" width=\"{width}\" height=\"{height}\"/>\n"
    );
    svg += &panel(LEFT[0], "round trip, µs", lines);
    svg += &panel(LEFT[1], "throughput, MiB/s", &throughput);
    for (index, line) in lines.iter().enumerate() {
        let x = LEFT[0] + NAME_WIDTH * index as f64;
        let (colour, name) = (index % COLOURS, escaped(&line.name));
        svg += &format!(
            "<g class=\"c{colour}\"><circle cx=\"{x}\" cy=\"20\" r=\"5\"/>\
             <text x=\"{}\" y=\"24\">{name}</text></g>\n",
            x + 10.0
        );
    }
    svg + "</svg>\n"
}

/// One diagram, with its left edge at `left`.
fn panel(left: f64, title: &str, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let x = Axis::of(points().map(|point| point.0), left..left + PANEL[0], 2.0);
    let y = Axis::of(points().map(|point| point.1), TOP + PANEL[1]..TOP, 10.0);
    let (right, bottom) = (left + PANEL[0], TOP + PANEL[1]);
    let mut svg = String::new();
    for (value, at) in y.ticks() {
        svg += &format!(
            "<line class=\"grid\" x1=\"{left}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>\n",
            left - 6.0,
            at + 4.0
        );
    }
    let sizes: BTreeSet<u64> = points().map(|point| point.0 as u64).collect();
    for bytes in sizes {
        let at = x.at(bytes as f64);
        svg += &format!(
            "<line class=\"grid\" x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\"/>\
             <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
            bottom + 18.0,
            size(bytes)
        );
    }
    svg += &format!(
        "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{title}, by size of the message</text>\n",
        left + PANEL[0] / 2.0,
        bottom + 40.0
    );
    for (index, line) in lines.iter().enumerate() {
        svg += &curve(index % COLOURS, line, &x, &y);
    }
    svg
}

/// A line with a dot at each point.
fn curve(colour: usize, line: &Line, x: &Axis, y: &Axis) -> String {
    let (mut corners, mut dots) = (String::new(), String::new());
    for (bytes, value) in &line.points {
        let (x, y) = (x.at(*bytes), y.at(*value));
        let _ = write!(corners, "{x:.1},{y:.1} ");
        let _ = write!(dots, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>");
    }
    let corners = corners.trim_end();
    format!("<g class=\"c{colour}\"><polyline points=\"{corners}\"/>{dots}</g>\n")
}

/// A logarithmic axis.
struct Axis {
    base: f64,
    /// Its first and last exponent.
    exponents: Range<i32>,
    /// Its first and last pixel.
    pixels: Range<f64>,
}

impl Axis {
    /// The shortest axis between two powers of the base that has all values.
    fn of(values: impl Iterator<Item = f64> + Clone, pixels: Range<f64>, base: f64) -> Self {
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let most = values.fold(0.0, f64::max);
        // Rounded, because the logarithm of a power of the base may be a little off.
        let exponent = |value: f64| (value.ln() / base.ln() * 1e9).round() / 1e9;
        let exponents = match least <= most {
            true => exponent(least).floor() as i32..exponent(most).ceil() as i32,
            false => 0..1,
        };
        Axis {
            base,
            exponents: exponents.start..exponents.end.max(exponents.start + 1),
            pixels,
        }
    }

    fn at(&self, value: f64) -> f64 {
        let Range { start, end } = self.exponents;
        let part = (value.ln() / self.base.ln() - f64::from(start)) / f64::from(end - start);
        self.pixels.start + part * (self.pixels.end - self.pixels.start)
    }

    /// The powers of the base, and their pixels.
    fn ticks(&self) -> impl Iterator<Item = (f64, f64)> {
        let exponents = self.exponents.start..=self.exponents.end;
        exponents.map(|exponent| {
            let value = self.base.powi(exponent);
            (value, self.at(value))
        })
    }
}

/// A size in bytes for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..0x400 => format!("{bytes} B"),
        0x400..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

fn escaped(name: &str) -> String {
    name.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, points: &[(f64, f64)]) -> Line {
        Line {
            name: name.to_owned(),
            points: points.to_vec(),
        }
    }

    #[test]
    fn each_line_is_in_both_panels_and_in_the_legend() {
        let ours = line("vmlib", &[(8.0, 10.0), (16.0 * MIB, 20_000.0)]);
        let theirs = line("A & B", &[(8.0, 1.0), (16.0 * MIB, 9_000.0)]);
        let svg = svg(&[ours, theirs]);
        assert_eq!(svg.matches("<polyline").count(), 4);
        assert_eq!(svg.matches("<g class=\"c1\">").count(), 3);
        assert!(svg.contains(">A &amp; B</text>"));
        assert!(svg.contains("prefers-color-scheme: dark"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert_eq!(svg.matches("<g ").count(), svg.matches("</g>").count());
    }

    #[test]
    fn the_axes_are_logarithmic_and_hold_all_values() {
        let axis = Axis::of([2.0, 1000.0].into_iter(), 0.0..300.0, 10.0);
        assert_eq!(axis.exponents, 0..3);
        for (value, pixel) in [(1.0, 0.0), (10.0, 100.0), (1000.0, 300.0)] {
            assert!((axis.at(value) - pixel).abs() < 1e-6, "{value}");
        }
        let values = Vec::from_iter(axis.ticks().map(|tick| tick.0));
        assert_eq!(values, [1.0, 10.0, 100.0, 1000.0]);
    }

    #[test]
    fn one_value_and_no_value_have_an_axis_too() {
        let axis = Axis::of([10.0].into_iter(), 0.0..100.0, 10.0);
        assert_eq!(axis.exponents, 1..2);
        let axis = Axis::of(std::iter::empty(), 0.0..100.0, 10.0);
        assert_eq!(axis.exponents, 0..1);
        assert!(svg(&[]).ends_with("</svg>\n"));
    }

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!(size(8), "8 B");
        assert_eq!(size(64 << 10), "64 KiB");
        assert_eq!(size(16 << 20), "16 MiB");
    }
}
