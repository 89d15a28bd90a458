//! Results as one HTML page that needs no other file. The page, its style and its program are in `assets/view`.
//!
//! The page may be opened from a mail, and names in a record may come from untrusted sources. Therefore its content
//! security policy allows only the style and the program of the page itself, by their hashes. The data are compressed
//! and written in base64, which has no character that HTML gives a meaning. The program shows texts as text, never as
//! HTML.

mod base64;
mod data;

use sha2::{Digest, Sha256};

use crate::measure::RunRecord;
use crate::measure::ab::AbRecord;
use crate::measure::cases::{Case, CasesHeader};
use crate::measure::compare::{self, CompareOptions, Comparison, RunSet};

use super::comparison::compare as compared;
use super::page::{self, Page, escaped};
use super::picture::{self, Gallery};
use super::plan::PlanDocument;
use super::variant::marks;
use super::{ab, run};
use data::Data;

const PAGE: &str = include_str!("../../../assets/view/page.html");
const STYLE: &str = concat!(
    include_str!("../../../assets/view/theme.css"),
    include_str!("../../../assets/view/style.css"),
    include_str!("../../../assets/view/picture.css"),
    include_str!("../../../assets/uplot/uPlot.min.css"),
);

/// uPlot, which draws curves, with its licence. Pages without curves do without it.
const CURVES: [&str; 4] = [
    "/*\n",
    include_str!("../../../assets/uplot/LICENSE"),
    "\n*/\n",
    include_str!("../../../assets/uplot/uPlot.iife.min.js"),
];

/// The parts of the page's program, each after those that it uses.
const PROGRAM: [&str; 11] = [
    include_str!("../../../assets/view/format.js"),
    include_str!("../../../assets/view/dom.js"),
    include_str!("../../../assets/view/model.js"),
    include_str!("../../../assets/view/tables.js"),
    include_str!("../../../assets/view/charts.js"),
    include_str!("../../../assets/view/plots.js"),
    include_str!("../../../assets/view/reports.js"),
    include_str!("../../../assets/view/drawing.js"),
    include_str!("../../../assets/view/timeline.js"),
    include_str!("../../../assets/view/details.js"),
    include_str!("../../../assets/view/main.js"),
];

/// Level of compression, from 0 to 10.
const LEVEL: u8 = 7;

pub struct PageContent<'a> {
    /// The title of the page, with marks such as `simulated`.
    title: String,
    /// Runs with a timeline and tables of their operations.
    runs: &'a [RunRecord],
    /// Reports, shown as lines and tables.
    pages: Vec<Page>,
    galleries: Vec<Gallery>,
}

impl<'a> PageContent<'a> {
    /// Runs, at least one. Two runs are compared as well.
    pub fn runs(runs: &'a [RunRecord]) -> PageContent<'a> {
        let names: Vec<String> = runs.iter().map(|run| format!("{}{}", run.workload.name, marks(run))).collect();
        let comparison = between(runs);
        let galleries = [
            picture::splits(runs),
            picture::phases(runs),
            picture::times(runs),
            picture::samples(runs),
            picture::modes(runs),
            picture::rooflines(runs),
            picture::rates(runs),
            picture::health(runs),
            comparison.as_ref().and_then(picture::differences),
        ];
        PageContent {
            title: names.join(" | "),
            runs,
            pages: comparison.iter().flat_map(compared::compare).collect(),
            galleries: galleries.into_iter().flatten().collect(),
        }
    }

    /// The cases of a sweep or a suite with their report.
    pub fn cases(header: &CasesHeader, cases: &[&Case], page: Page) -> PageContent<'a> {
        let mark = cases.iter().find_map(|case| case.record.as_deref()).map_or("", marks);
        let galleries = [picture::curves(header, cases), picture::cases(cases)];
        PageContent {
            title: format!("{}{mark}", header.name),
            runs: &[],
            pages: vec![page],
            galleries: galleries.into_iter().flatten().collect(),
        }
    }

    /// An A/B comparison.
    pub fn ab(record: &AbRecord) -> PageContent<'a> {
        let [a, b] = [&record.a, &record.b].map(|side| format!("{}{}", side.run.workload.name, marks(&side.run)));
        PageContent {
            title: if a == b { format!("a and b of {a}") } else { format!("a: {a}, b: {b}") },
            runs: &[],
            pages: vec![ab(record)],
            galleries: picture::blocks(record).into_iter().collect(),
        }
    }

    /// A comparison of earlier runs.
    pub fn comparison(comparison: &Comparison) -> PageContent<'a> {
        let galleries = picture::differences(comparison).into_iter().collect();
        PageContent { galleries, ..PageContent::reports(compared::compare(comparison)) }
    }

    /// Returns a page with reports only, without pictures.
    pub fn reports(pages: Vec<Page>) -> PageContent<'static> {
        let names: Vec<&str> = pages.iter().map(|page| page.name.as_str()).collect();
        PageContent { title: names.join(" | "), runs: &[], galleries: Vec::new(), pages }
    }

    /// A plan: pictures of its document and of its memory, with a report.
    pub fn plan(document: &PlanDocument, memory: Option<Gallery>, page: Page) -> PageContent<'static> {
        PageContent {
            title: document.title(),
            runs: &[],
            pages: vec![page],
            galleries: picture::streams(document).into_iter().chain(memory).collect(),
        }
    }

    /// The pictures of the page.
    pub fn galleries(&self) -> &[Gallery] {
        &self.galleries
    }

    /// The data of the page as JSON, before compression.
    pub fn data(&self) -> String {
        serde_json::to_string(&Data::of(self)).expect("a record holds nothing that JSON cannot")
    }

    pub fn html(&self) -> String {
        let has_curves = self.galleries.iter().flat_map(Gallery::pictures).any(|picture| !picture.plots.is_empty());
        let program = [if has_curves { CURVES.concat() } else { String::new() }, PROGRAM.concat()].concat();
        let runs = self.runs.iter().map(|record| run(record, None));
        let text = page::text(&runs.chain(self.pages.iter().cloned()).collect::<Vec<_>>());
        let compressed = miniz_oxide::deflate::compress_to_vec_zlib(self.data().as_bytes(), LEVEL);
        let mut rest = PAGE;
        let mut out = String::new();
        // Each part once, in the order of the page, so that no text of a record is taken for the place of another.
        for (place, text) in [
            ("{{program hash}}", hash(&program)),
            ("{{style hash}}", hash(STYLE)),
            ("{{title}}", escaped(&self.title)),
            ("{{style}}", STYLE.to_owned()),
            ("{{text}}", escaped(&text)),
            ("{{data}}", base64::encode(&compressed)),
            ("{{program}}", program),
        ] {
            let (before, after) = rest.split_once(place).expect("the page has a place for each part");
            out.push_str(before);
            out.push_str(&text);
            rest = after;
        }
        out + rest
    }
}

/// The comparison of two runs; `None` unless there are two that have a case in common.
fn between(runs: &[RunRecord]) -> Option<Comparison> {
    let [base, other] = runs else { return None };
    let side = |number: usize, run: &RunRecord| RunSet::of_record(&format!("{number}. {}", run.workload.name), run);
    let options = CompareOptions { operations: true, ..CompareOptions::default() };
    let comparison = compare::compare(&side(1, base), &[side(2, other)], &options);
    comparison.others.iter().any(|against| !against.pairs.is_empty()).then_some(comparison)
}

/// The hash of a style or a program, as a content security policy takes it.
fn hash(text: &str) -> String {
    format!("sha256-{}", base64::encode(&Sha256::digest(text)))
}
