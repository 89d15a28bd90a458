//! Files that generated files name: modules, a trace and data, none of which is on a disk.

use std::path::PathBuf;
use std::sync::Arc;

use aorta::compile::{self, ModuleText};
use aorta::ops::DataFile;

use super::Generator;
use super::operations::{Use, tensor_type};

/// A module with a definition that has a tensor of any type and sizes.
const PARTS: &str = "let factor = 2\n/// Both ways.\ndef twice(x -> y, z) { h: map(x * factor) map(h, -h -> y, z) }\n";

/// A trace with a column of whole numbers.
const LENGTHS: &str = "prompt,output\n4,1\n0,2\n7,3\n";

/// Bytes of the file with data.
const DATA: u64 = 4096;

/// Returns the file at a path that a generated file names, or a shipped module.
pub fn find(path: &str, by: Option<&str>) -> Result<ModuleText, String> {
    match path {
        "parts.aorta" => Ok(ModuleText::text(path.to_owned(), PARTS.to_owned())),
        "lengths.csv" => Ok(ModuleText::text(path.to_owned(), LENGTHS.to_owned())),
        "data.bin" => {
            let read = |_: &std::path::Path, _: u64, bytes: &mut [u8]| {
                bytes.fill(1);
                Ok(())
            };
            let data = DataFile { path: PathBuf::from(path), bytes: DATA, read };
            Ok(ModuleText { data: Some(Arc::new(data)), ..ModuleText::text(path.to_owned(), String::new()) })
        }
        _ => compile::no_files(path, by),
    }
}

impl Generator<'_> {
    /// Uses a module, shipped or from a file.
    pub fn module(&mut self) {
        let module = self.choices.pick(&["\"parts.aorta\"", "std.transformer", "std.optimizer"]);
        self.add(&format!("use {module}"));
        self.module = Some(module);
    }

    /// Calls a definition of the module that the file uses.
    pub fn call_module(&mut self) -> Use {
        let dtype = self.dtype;
        let ty = |dims: &[u64]| tensor_type(dtype, dims);
        match self.module {
            Some("\"parts.aorta\"") => {
                let x = self.operand(&[dtype], |x| x.space != "host");
                let scratch = vec![(".y", dtype, x.dims.clone()), (".z", dtype, x.dims)];
                Use { text: format!("parts.twice({})", x.name), scratch }
            }
            Some("std.transformer") => {
                let x = self.operand(&[dtype], |x| x.space == "device" && x.dims == [8, 16] && !x.gaps);
                let (gate, down) = (ty(&[16, 32]), ty(&[32, 16]));
                let text = format!("transformer.feed_forward({}, {}, {gate}, {gate}, {down})", x.name, ty(&[16]));
                Use { text, scratch: vec![(".y", dtype, vec![8, 16])] }
            }
            Some(_) => {
                let g = tensor_type("f32", &[64]);
                let state: Vec<String> = ["w", "m", "v"].iter().map(|_| self.fresh("l")).collect();
                for name in &state {
                    self.add(&format!("buffer {name}: {g} = ones"));
                }
                Use::new(format!("optimizer.clipped_adamw({g}, 1.0, 1e-3 -> {})", state.join(", ")))
            }
            None => Use::new("nop()".to_owned()),
        }
    }
}
