//! Reads the files of traces and finds those with data before the analysis, each once for all ranks.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{DataFiles, TraceFault, Traces, trace_column, trace_source};
use crate::ops::{self, DataFile, Input, OptionSpec, OptionType};
use crate::syntax::ast::{DeclKind, ExprKind, StmtKind};
use crate::syntax::{Ast, walk};

use super::modules::{DATA, FindModule};

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

/// Finds the files with data that operations of the workload and its modules read, from the folder of the workload.
pub(super) fn data_files(ast: &Ast, find: FindModule) -> DataFiles {
    let mut files = DataFiles::new();
    walk::stmts(ast, &mut |stmt| {
        let StmtKind::Call(call) = &stmt.kind else { return };
        let [name] = &call.callee[..] else { return };
        let Some(operation) = ops::find(ast.names.name(name.symbol)) else { return };
        for (arg, input) in call.inputs.iter().zip(operation.signature().inputs) {
            if let (ExprKind::Text(path), Input::Scalar(OptionSpec { kind: OptionType::File, .. })) =
                (&arg.value.kind, input)
            {
                files.entry(path.clone()).or_insert_with(|| data_file(path, find));
            }
        }
    });
    files
}

fn data_file(path: &str, find: FindModule) -> Result<Arc<DataFile>, String> {
    if !path.ends_with(DATA) {
        return Err(format!("the name of a file with data ends in `{DATA}`"));
    }
    find(path, None)?.data.ok_or_else(|| "it is not a file with data".to_owned())
}

fn file(path: &str, find: FindModule) -> Result<String, String> {
    if !path.ends_with(".csv") {
        return Err("the name of a trace's file ends in `.csv`".to_owned());
    }
    find(path, None).map(|found| found.text)
}
