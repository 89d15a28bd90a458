//! A picture as a self-contained SVG file.

use crate::report::page::escaped;

use super::{Attribute, Picture, SvgElement};

/// Colours of the light theme, then of the dark one, each in a block of its own.
const THEME: &str = include_str!("../../../assets/view/theme.css");

/// The rules of the classes that shapes have.
const RULES: &str = include_str!("../../../assets/view/picture.css");

/// The rules with the colours of these blocks of the theme, the first that has each. Programs that convert SVG have no
/// variables.
fn colored(blocks: &[usize]) -> String {
    let mut rules = RULES.replace(".picture ", "");
    for block in blocks {
        let entries = THEME.split('}').nth(*block).unwrap_or_default().split(';');
        for (name, color) in entries.filter_map(|entry| entry.split_once("--")?.1.split_once(':')) {
            rules = rules.replace(&format!("var(--{name})"), color.trim());
        }
    }
    rules
}

/// The picture as a file, light or dark as its reader prefers.
pub fn svg(picture: &Picture) -> String {
    let Picture { width, height, description, shapes, .. } = picture;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\" role=\"img\">\n<title>{}</title>\n<style>\n{}\
         @media screen and (prefers-color-scheme: dark) {{\n{}}}\n</style>\n",
        escaped(&description.replace('\n', " ")),
        colored(&[0]),
        colored(&[1, 0]),
    );
    for shape in std::iter::once(&SvgElement::rect("fill-page", 0.0, 0.0, *width, *height)).chain(shapes) {
        write(shape, &mut out);
    }
    out + "</svg>\n"
}

fn write(shape: &SvgElement, out: &mut String) {
    let SvgElement { tag, class, attributes, text, title } = shape;
    *out += &format!("<{tag} class=\"{class}\"");
    for (name, value) in attributes {
        let value = match value {
            Attribute::Number(number) => number.to_string(),
            Attribute::Word(word) => (*word).to_owned(),
            Attribute::Text(text) => escaped(text),
        };
        *out += &format!(" {name}=\"{value}\"");
    }
    if text.is_empty() && title.is_empty() {
        *out += "/>\n";
        return;
    }
    let line = |text: &str| escaped(&text.replace('\n', " "));
    let title = if title.is_empty() { String::new() } else { format!("<title>{}</title>", line(title)) };
    *out += &format!(">{}{title}</{tag}>\n", line(text));
}
