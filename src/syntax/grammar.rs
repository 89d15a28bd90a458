//! The grammar of `grammar/aorta.pest`, as pest makes it.

#[derive(pest_derive::Parser)]
#[grammar = "../grammar/aorta.pest"]
pub struct Grammar;
