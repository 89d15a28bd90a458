//! Pictures of results as shapes. The page and the SVG files draw the same shapes, so both show the same picture.
//!
//! A shape has a class instead of a colour; `assets/view/theme.css` gives the colours of the light and the dark theme.

mod blocks;
mod chart;
mod curve;
mod differences;
mod health;
mod iteration;
mod memory;
mod modes;
mod plot;
mod rates;
mod roofline;
mod samples;
mod scale;
mod split;
mod streams;
mod svg;
mod times;

use serde::Serialize;
use serde::ser::{SerializeSeq, SerializeStruct, Serializer};

use super::run::operations::shortened;

pub use blocks::blocks;
pub use curve::curves;
pub use differences::differences;
pub use health::health;
pub use iteration::iterations;
pub use memory::memory;
pub use modes::modes;
pub use plot::Plot;
pub use rates::rates;
pub use roofline::rooflines;
pub use samples::samples;
pub use split::{phases, splits};
pub use streams::streams;
pub use svg::svg;
pub use times::{cases, times};

/// Width of a picture in pixels.
const WIDTH: f64 = 760.0;

/// Maximum length of a text beside a picture's row in characters.
const LABEL: usize = 32;

/// Width of a letter in pixels, on average.
const LETTER: f64 = 6.25;

/// A picture of a report. Sizes are in pixels.
#[derive(Clone, Debug)]
pub struct Picture {
    pub width: f64,
    pub height: f64,
    /// The content in a sentence, for screen readers.
    pub description: String,
    /// The shapes of the SVG file, and of the page unless the picture has plots.
    pub shapes: Vec<SvgElement>,
    /// Charts that the page draws instead of the shapes.
    pub plots: Vec<Plot>,
}

#[derive(Clone, Debug)]
pub struct SvgElement {
    tag: &'static str,
    /// Classes of `assets/view/picture.css`.
    class: &'static str,
    attributes: Vec<(&'static str, Attribute)>,
    /// Content of a text; empty for other shapes.
    text: String,
    /// Text that the pointer shows; empty without one.
    title: String,
}

#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
enum Attribute {
    Number(f64),
    Word(&'static str),
    Text(String),
}

/// Pictures of one kind; a reader chooses one of them.
#[derive(Clone, Debug, Serialize)]
pub struct Gallery {
    /// Name in files: `curve`.
    pub name: &'static str,
    pub title: String,
    /// Explanations of the pictures.
    pub notes: Vec<String>,
    /// The choices; empty for a single picture.
    pub choices: Vec<ReaderChoice>,
    /// Each picture with the index of its option in each choice.
    pub pictures: Vec<(Vec<usize>, Picture)>,
}

/// Something that a reader chooses.
#[derive(Clone, Debug, Serialize)]
pub struct ReaderChoice {
    pub label: &'static str,
    pub options: Vec<String>,
}

impl Gallery {
    /// Pictures with a single choice; `None` without pictures.
    pub fn of(
        name: &'static str,
        title: &str,
        notes: &[&str],
        label: &'static str,
        pictures: Vec<(String, Picture)>,
    ) -> Option<Gallery> {
        if pictures.is_empty() {
            return None;
        }
        let (options, pictures): (Vec<String>, Vec<Picture>) = pictures.into_iter().unzip();
        let several = pictures.len() > 1;
        Some(Gallery {
            name,
            title: title.to_owned(),
            notes: notes.iter().map(|note| (*note).to_owned()).collect(),
            choices: Vec::from_iter(several.then_some(ReaderChoice { label, options })),
            pictures: (0..)
                .zip(pictures)
                .map(|(index, picture)| (if several { vec![index] } else { Vec::new() }, picture))
                .collect(),
        })
    }

    /// Iterates over the pictures of the gallery.
    pub fn pictures(&self) -> impl Iterator<Item = &Picture> {
        self.pictures.iter().map(|(_, picture)| picture)
    }

    /// Each picture with a name for files of lower-case letters, digits and hyphens, such as `curve-streams-median`.
    pub fn files(&self) -> impl Iterator<Item = (String, &Picture)> {
        self.pictures.iter().map(|(chosen, picture)| {
            let options = self.choices.iter().zip(chosen).map(|(choice, option)| choice.options[*option].as_str());
            let words: Vec<String> = std::iter::once(self.name).chain(options).map(word).collect();
            (words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-"), picture)
        })
    }
}

impl Picture {
    /// The picture with a legend below it, of classes that fill and their meanings, in this many columns.
    fn with_legend<T: AsRef<str>>(
        mut self,
        entries: impl IntoIterator<Item = (&'static str, T)>,
        columns: usize,
    ) -> Picture {
        let mut rows = 0;
        for (index, (class, meaning)) in entries.into_iter().enumerate() {
            rows = index / columns + 1;
            let x = (index % columns) as f64 * WIDTH / columns as f64;
            let y = self.height + 4.0 + (index / columns) as f64 * LEGEND_ROW;
            self.shapes.push(match class {
                "dashed" => SvgElement::line(class, (x, y + 6.0), (x + 12.0, y + 6.0)),
                _ => SvgElement::rect(class, x, y, 12.0, 12.0),
            });
            let letters = (WIDTH / columns as f64 / LETTER) as usize;
            self.shapes.push(SvgElement::label_within(letters - 3, (x + 17.0, y + 10.0), meaning.as_ref()));
        }
        self.height += rows as f64 * LEGEND_ROW + 8.0;
        self
    }
}

/// Height of a line of a legend in pixels.
const LEGEND_ROW: f64 = 18.0;

/// A text as a part of a file's name.
fn word(text: &str) -> String {
    let letters: String = text
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' })
        .collect();
    let words: Vec<&str> = letters.split('-').filter(|word| !word.is_empty()).collect();
    words.join("-").chars().take(40).collect()
}

impl Serialize for Picture {
    /// Serializes the data that the page draws: the plots, or the shapes with their size.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Picture { width, height, description, shapes, plots } = self;
        let mut fields = serializer.serialize_struct("Picture", 4)?;
        fields.serialize_field("description", description)?;
        if plots.is_empty() {
            fields.serialize_field("width", width)?;
            fields.serialize_field("height", height)?;
            fields.serialize_field("shapes", shapes)?;
        } else {
            fields.serialize_field("plots", plots)?;
        }
        fields.end()
    }
}

impl Serialize for SvgElement {
    /// Writes a list of tag, class, attributes, text and title. A list is shorter than an object, and a page has very many
    /// shapes.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let attributes: indexmap::IndexMap<_, _> = self.attributes.iter().map(|(name, value)| (*name, value)).collect();
        let mut list = serializer.serialize_seq(None)?;
        list.serialize_element(self.tag)?;
        list.serialize_element(self.class)?;
        list.serialize_element(&attributes)?;
        if !self.text.is_empty() || !self.title.is_empty() {
            list.serialize_element(&self.text)?;
        }
        if !self.title.is_empty() {
            list.serialize_element(&self.title)?;
        }
        list.end()
    }
}

/// Rounds to a tenth of a pixel.
fn tenth(value: f64) -> f64 {
    let rounded = (value * 10.0).round() / 10.0;
    if rounded == 0.0 { 0.0 } else { rounded }
}

impl SvgElement {
    fn new<const N: usize>(tag: &'static str, class: &'static str, numbers: [(&'static str, f64); N]) -> SvgElement {
        let attributes = numbers.map(|(name, value)| (name, Attribute::Number(tenth(value)))).to_vec();
        SvgElement { tag, class, attributes, text: String::new(), title: String::new() }
    }

    /// A rectangle; a negative size counts as 0.
    pub fn rect(class: &'static str, x: f64, y: f64, width: f64, height: f64) -> SvgElement {
        SvgElement::new("rect", class, [("x", x), ("y", y), ("width", width.max(0.0)), ("height", height.max(0.0))])
    }

    /// A straight line between two points.
    pub fn line(class: &'static str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) -> SvgElement {
        SvgElement::new("line", class, [("x1", x1), ("y1", y1), ("x2", x2), ("y2", y2)])
    }

    /// A circle around a point.
    pub fn circle(class: &'static str, (cx, cy): (f64, f64), r: f64) -> SvgElement {
        SvgElement::new("circle", class, [("cx", cx), ("cy", cy), ("r", r)])
    }

    /// A path with the given commands, such as `M0 0V5`.
    pub fn path(class: &'static str, commands: String) -> SvgElement {
        let mut shape = SvgElement::new("path", class, []);
        shape.attributes.push(("d", Attribute::Text(commands)));
        shape
    }

    /// A line through points.
    pub fn through(class: &'static str, points: &[(f64, f64)]) -> SvgElement {
        let mut commands = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            let command = if index == 0 { "M" } else { "L" };
            commands += &format!("{command}{} {}", tenth(*x), tenth(*y));
        }
        SvgElement::path(class, commands)
    }

    /// A text that begins at a point.
    pub fn text(class: &'static str, (x, y): (f64, f64), text: impl Into<String>) -> SvgElement {
        SvgElement { text: text.into(), ..SvgElement::new("text", class, [("x", x), ("y", y)]) }
    }

    /// A text cut to the room beside a row; the pointer shows all of it.
    fn label(at: (f64, f64), text: &str) -> SvgElement {
        SvgElement::label_within(LABEL, at, text)
    }

    /// Returns a text that is cut to `most` characters. The whole text appears when the pointer is over it.
    fn label_within(most: usize, at: (f64, f64), text: &str) -> SvgElement {
        let shown = shortened(text, most);
        let title = if shown == text { String::new() } else { text.to_owned() };
        SvgElement::text("ink", at, shown).titled(title)
    }

    /// Places the middle (`middle`) or the end (`end`) of a text at its point.
    pub fn anchored(mut self, anchor: &'static str) -> SvgElement {
        self.attributes.push(("text-anchor", Attribute::Word(anchor)));
        self
    }

    /// The text that the pointer shows.
    pub fn titled(self, title: impl Into<String>) -> SvgElement {
        SvgElement { title: title.into(), ..self }
    }
}

/// The fill of a series of curves or bars, by its number.
const FILLS: [&str; 7] =
    ["fill-part-1", "fill-part-2", "fill-part-3", "fill-part-4", "fill-part-6", "fill-part-5", "fill-part-7"];

/// The stroke of a series of curves, by its number.
const STROKES: [&str; 7] = [
    "stroke-part-1",
    "stroke-part-2",
    "stroke-part-3",
    "stroke-part-4",
    "stroke-part-6",
    "stroke-part-5",
    "stroke-part-7",
];

/// The fill of a kind of operations.
fn kind_fill(category: &str) -> &'static str {
    match category {
        "matrix" => "fill-kind-matrix",
        "elementwise" => "fill-kind-elementwise",
        "row-wise" => "fill-kind-row-wise",
        "movement" => "fill-kind-movement",
        "copy" => "fill-kind-copy",
        "collective" => "fill-kind-collective",
        "synthetic" => "fill-kind-synthetic",
        "kernel" => "fill-kind-kernel",
        _ => "fill-kind-marker",
    }
}
