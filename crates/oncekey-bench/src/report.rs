//! What was measured, for people and for programs.

use serde_json::{Map, Value, json};

/// How to print it.
#[derive(Clone, Copy)]
pub(crate) enum Format {
    Lines,
    Json,
}

/// Figures in the order they were added, and ratios, which come last.
#[derive(Default)]
pub(crate) struct Report {
    figures: Vec<Figure>,
    ratios: Vec<(String, f64)>,
}

struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
}

impl Report {
    pub(crate) fn figure(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.figures.push(Figure { name: name.into(), value, unit });
    }

    /// `name.ratio`: what was measured, divided by what it is compared with.
    pub(crate) fn ratio(&mut self, name: &str, measured: f64, peer: f64) {
        self.ratios.push((format!("{name}.ratio"), measured / peer));
    }

    pub(crate) fn print(&self, format: Format) {
        match format {
            Format::Lines => print!("{}", self.lines()),
            Format::Json => println!("{}", self.json()),
        }
    }

    fn lines(&self) -> String {
        let figure = |one: &Figure| match one.value < 100.0 {
            true => format!("{} {:.2} {}\n", one.name, one.value, one.unit),
            false => format!("{} {:.0} {}\n", one.name, one.value, one.unit),
        };
        let figures = self.figures.iter().map(figure);
        let ratios = self.ratios.iter().map(|(name, value)| format!("{name} {value:.2}\n"));
        figures.chain(ratios).collect()
    }

    fn json(&self) -> Value {
        let figures = self
            .figures
            .iter()
            .map(|one| (one.name.clone(), json!({ "value": one.value, "unit": one.unit })));
        let ratios =
            self.ratios.iter().map(|(name, value)| (name.clone(), json!({ "value": value })));
        Value::Object(figures.chain(ratios).collect::<Map<_, _>>())
    }
}

/// The middle of the values; of an even number of them, the mean of the two in the middle.
///
/// # Panics
/// Without any value: a bench has at least one round.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    assert!(!values.is_empty(), "a bench has at least one round");
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_ignores_the_order_and_the_outlier() {
        assert_eq!(median([3.0, 1.0, 900.0]).to_bits(), 3.0_f64.to_bits());
        assert_eq!(median([4.0, 2.0]).to_bits(), 3.0_f64.to_bits());
    }

    #[test]
    fn ratios_come_last() {
        let mut report = Report::default();
        report.ratio("gateway.new", 60.0, 100.0);
        report.figure("gateway.new", 25_000.4, "/s");
        report.figure("gateway.idle_rss", 12.345, "MiB");
        let lines = "gateway.new 25000 /s\ngateway.idle_rss 12.35 MiB\ngateway.new.ratio 0.60\n";
        assert_eq!(report.lines(), lines);
        assert_eq!(report.json()["gateway.new.ratio"]["value"], json!(0.6));
        assert_eq!(report.json()["gateway.idle_rss"]["unit"], json!("MiB"));
    }
}
