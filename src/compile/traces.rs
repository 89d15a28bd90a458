//! Reads the files of traces before the analysis, each once for all ranks.

use std::collections::BTreeMap;

use crate::model::{TraceFault, Traces, trace_column, trace_source};
use crate::syntax::Ast;
use crate::syntax::ast::DeclKind;

use super::modules::FindModule;

/// Reads the columns that the draws of a workload name. `text` gets the text of each file, in the order of their first use.
pub(super) fn read(ast: &Ast, find: FindModule, mut text: impl FnMut(&str)) -> Traces {
    let mut files: BTreeMap<&str, Result<String, String>> = BTreeMap::new();
    let mut traces = Traces::new();
    for decl in &ast.decls {
        let DeclKind::Draw { distribution, args, options, .. } = &decl.kind else { continue };
        if ast.names.name(distribution.symbol) != "trace" {
            continue;
        }
        let column = options.iter().find(|option| ast.names.name(option.key.symbol) == "column");
        let Some((path, column)) = trace_source(args, column.map(|option| &option.value)) else { continue };
        let file = files.entry(path).or_insert_with(|| {
            let found = file(path, find);
            found.iter().for_each(|found| text(found));
            found
        });
        let values = match file {
            Ok(text) => trace_column(text, column),
            Err(why) => Err(TraceFault::File(why.clone())),
        };
        traces.insert((path.to_owned(), column.to_owned()), values);
    }
    traces
}

fn file(path: &str, find: FindModule) -> Result<String, String> {
    if !path.ends_with(".csv") {
        return Err("the name of a trace's file ends in `.csv`".to_owned());
    }
    find(path, None).map(|found| found.text)
}
