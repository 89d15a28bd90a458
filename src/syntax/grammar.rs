//! The parser that pest generates from `grammar/aorta.pest`.

#[derive(pest_derive::Parser)]
#[grammar = "../grammar/aorta.pest"]
pub struct Grammar;
