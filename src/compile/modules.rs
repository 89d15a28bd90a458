//! `use`: adds the definitions and values of other files to a tree, under the names of these files.
//!
//! A module is linked by renaming. The value `width` of the module `blocks` becomes `blocks.width`, a name that no file
//! can declare, and so do all its uses: `blocks.width` in the file that uses the module, and `width` inside of the
//! module. The module's declarations then precede those of the file, and later stages do not deal with modules.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::{DType, Interner, SourceMap, SrcSpan, Symbol, suggest};
use crate::model::{KernelError, ModelError, ModuleError};
use crate::ops::DataFile;
use crate::syntax::ast::*;
use crate::syntax::walk::{Child, ChildMut};
use crate::syntax::{self, SyntaxLimits};

use super::diagnostics::{BoxedDiagnostic, boxed};

/// Maximum number of modules of a workload.
const MODULES: usize = 64;

/// Finds the text of a module or of a trace, or a file with data. The first argument is the path or the name with dots,
/// as written; the second is the name of the module that uses it, `None` for the workload itself. The error is the
/// reason why there is no such text.
pub type FindModule<'a> = &'a dyn Fn(&str, Option<&str>) -> Result<ModuleText, String>;

/// The text of a module or of a trace, or a file with the code of a kernel or with data.
#[derive(Clone, Debug)]
pub struct ModuleText {
    /// Name of the file in diagnostics, the same whichever path leads to it.
    pub name: String,
    /// The text; empty for compiled code.
    pub text: String,
    /// The bytes of compiled code; `None` for a text.
    pub code: Option<Arc<[u8]>>,
    /// The file with data; `None` for a text or code. The text of such a file is empty.
    pub data: Option<Arc<DataFile>>,
}

impl ModuleText {
    /// The text of a module, a trace or a kernel.
    pub fn text(name: String, text: String) -> ModuleText {
        ModuleText { name, text, code: None, data: None }
    }
}

/// Extension of files with data.
pub const DATA: &str = ".bin";

/// Extensions of files with compiled kernels.
pub const COMPILED: [&str; 3] = [".ptx", ".cubin", ".hsaco"];

/// Extension of the metadata that Triton writes beside compiled kernels.
pub const METADATA: &str = ".json";

/// Extensions of files with sources of kernels.
pub const SOURCES: [&str; 2] = [".cu", ".hip"];

/// A linked module.
struct Module {
    /// Prefix of the full names of the module's declarations: `blocks` in `blocks.width`.
    prefix: String,
    /// Names that the module declares, without the prefix.
    declared: FxHashSet<Symbol>,
    /// True if the module's text has syntax errors, so that a name may be missing because of them.
    broken: bool,
}

/// Links the modules of a workload.
pub(super) struct Linker<'a> {
    pub find: FindModule<'a>,
    pub limits: &'a SyntaxLimits,
    pub sources: &'a mut SourceMap,
    pub errors: Vec<BoxedDiagnostic>,
    /// The contents of all modules and files of kernels, in the order of their first use.
    pub texts: Vec<Vec<u8>>,
    /// Modules by name; `None` while one is being linked.
    modules: FxHashMap<String, Option<Module>>,
    /// Declarations of all modules; a module precedes those that use it.
    decls: Vec<Decl>,
    /// Names that modules lack, and names of declarations that a module cannot have.
    unknown: Vec<Name>,
}

impl<'a> Linker<'a> {
    pub fn new(find: FindModule<'a>, limits: &'a SyntaxLimits, sources: &'a mut SourceMap) -> Linker<'a> {
        Linker {
            find,
            limits,
            sources,
            errors: Vec::new(),
            texts: Vec::new(),
            modules: FxHashMap::default(),
            decls: Vec::new(),
            unknown: Vec::new(),
        }
    }

    /// Links everything that the tree uses, directly or through others.
    pub fn link(&mut self, ast: &mut Ast) {
        self.kernel_files(ast, None);
        let uses = self.uses(ast, None);
        if uses.is_empty() {
            return;
        }
        self.rename(&mut ast.decls, &mut ast.names, None, &uses);
        let own = std::mem::take(&mut ast.decls);
        // A name that a module lacks becomes a declaration without a value, so that no later stage reports it again.
        let unlinked = |name: Name| Decl { docs: Vec::new(), span: name.span, kind: DeclKind::Unlinked(name) };
        let unknown = self.unknown.drain(..).map(unlinked);
        ast.decls = unknown.chain(self.decls.drain(..)).chain(own).collect();
    }

    /// Links the modules that a tree uses, and returns their names in it.
    fn uses(&mut self, ast: &mut Ast, by: Option<&str>) -> FxHashMap<Symbol, String> {
        let mut uses = FxHashMap::default();
        for index in 0..ast.decls.len() {
            let DeclKind::Use { what } = &ast.decls[index].kind else { continue };
            let (path, span) = (written(what, &ast.names), what.span);
            let short = short_name(&path).to_owned();
            let alias = Name { symbol: ast.names.intern(&short), span };
            let linked = match is_name(&short) {
                true => self.module(&path, span, by, &mut ast.names),
                false => Err(format!("`{short}` is not a name; a name has letters, digits and `_`")),
            };
            ast.decls[index].kind = match linked {
                Ok(name) => {
                    uses.insert(alias.symbol, name);
                    DeclKind::Use { what: Expr { span, kind: ExprKind::Name(alias.symbol) } }
                }
                Err(why) => {
                    if !why.is_empty() {
                        self.error(ModuleError::UnknownModule { path, why, at: span.into() });
                    }
                    DeclKind::Unlinked(alias)
                }
            };
        }
        uses
    }

    fn error(&mut self, error: ModuleError) {
        self.errors.extend(boxed([error]));
    }

    /// Finds and links a module, and returns its name. The error is empty if it was reported already.
    fn module(&mut self, path: &str, at: SrcSpan, by: Option<&str>, names: &mut Interner) -> Result<String, String> {
        if COMPILED.iter().chain(&SOURCES).chain([&METADATA]).any(|ending| path.ends_with(ending)) {
            return Err("a file with a kernel is named by the field `file` of a `kernel`".to_owned());
        }
        if path.ends_with(".csv") || path.ends_with(DATA) {
            return Err("the name of a module's file ends in `.aorta`".to_owned());
        }
        let ModuleText { name, text, .. } = (self.find)(path, by)?;
        match self.modules.get(&name) {
            Some(Some(_)) => return Ok(name),
            Some(None) => {
                self.error(ModuleError::ModuleCycle { path: path.to_owned(), at: at.into() });
                return Err(String::new());
            }
            None => {}
        }
        if self.modules.len() >= MODULES {
            return Err(format!("a workload has at most {MODULES} modules"));
        }
        self.modules.insert(name.clone(), None);
        let base = self.sources.add(name.as_str(), text.as_str()).ok_or("it is too large")?;
        let (mut ast, errors) = syntax::parse_module(&text, base, self.limits, std::mem::take(names));
        self.texts.push(text.into_bytes());
        self.kernel_files(&mut ast, Some(&name));
        let broken = !errors.is_empty();
        self.errors.extend(boxed(errors));
        let uses = self.uses(&mut ast, Some(&name));
        // Files of one name in different folders have different prefixes.
        let taken = |prefix: &str| self.modules.values().flatten().any(|module| module.prefix == prefix);
        let short = short_name(path);
        let mut numbered = (1..).map(|number| if number == 1 { short.to_owned() } else { format!("{short}~{number}") });
        let prefix = numbered.find(|prefix| !taken(prefix)).unwrap_or_default();
        for decl in std::mem::take(&mut ast.decls) {
            match decl.kind {
                DeclKind::Let(_) | DeclKind::Def { .. } | DeclKind::Kernel { .. } => ast.decls.push(decl),
                DeclKind::Meta(_) | DeclKind::Use { .. } => {}
                DeclKind::Unlinked(name) => self.unknown.push(prefixed(&mut ast.names, &prefix, name)),
                _ => {
                    self.error(ModuleError::ModuleContent { module: short.to_owned(), at: decl.span.into() });
                    decl.children(&mut |child| {
                        if let Child::Name(name) = child {
                            self.unknown.push(prefixed(&mut ast.names, &prefix, *name));
                        }
                    });
                }
            }
        }
        let declared = ast.decls.iter().filter_map(declared).collect();
        let module = Module { prefix, declared, broken };
        let mut decls = std::mem::take(&mut ast.decls);
        self.rename(&mut decls, &mut ast.names, Some(&module), &uses);
        self.decls.append(&mut decls);
        *names = ast.names;
        self.modules.insert(name.clone(), Some(module));
        Ok(name)
    }

    /// Reads the files that kernels of a tree name.
    fn kernel_files(&mut self, ast: &mut Ast, by: Option<&str>) {
        for decl in &mut ast.decls {
            let DeclKind::Kernel { name, fields, file, .. } = &mut decl.kind else { continue };
            let path = fields.iter().find(|field| ast.names.name(field.key.symbol) == "file");
            let Some(Expr { kind: ExprKind::Text(path), span }) = path.map(|field| &field.value) else { continue };
            let read = match COMPILED.iter().chain(&SOURCES).any(|ending| path.ends_with(ending)) {
                true => (self.find)(path, by),
                false => match path.strip_suffix(METADATA) {
                    Some(stem) => self.triton(path, stem, by),
                    None => Err("its name ends in `.cu`, `.hip`, `.ptx`, `.cubin`, `.hsaco` or `.json`".to_owned()),
                },
            };
            match read {
                Ok(ModuleText { name, text, code, .. }) => {
                    let code_bytes = code.iter().flat_map(|code| code.iter().copied());
                    self.texts.push(text.bytes().chain(code_bytes).collect());
                    *file = Some(KernelFile { name, text, code });
                }
                Err(why) => self.errors.extend(boxed([ModelError::from(KernelError::Source {
                    name: ast.names.name(name.symbol).to_owned(),
                    why: format!("has no code in `{path}`: {why}"),
                    help: "name a file in the folder of this one or below it: `file: \"k.cu\"`".to_owned(),
                    at: (*span).into(),
                    place: "this file",
                })])),
            }
        }
    }

    /// Reads an entry of Triton's cache: the metadata at `path`, and the code beside it, whose name has the same `stem`.
    fn triton(&self, path: &str, stem: &str, by: Option<&str>) -> Result<ModuleText, String> {
        let metadata = (self.find)(path, by)?;
        // A CUDA entry has the assembler's text beside the machine code, which loads without a further compilation.
        let code = [".cubin", ".hsaco", ".ptx"].map(|ending| (self.find)(&format!("{stem}{ending}"), by));
        let found = code.into_iter().find_map(|code| code.ok()?.code);
        let missing = || "no `.cubin`, `.ptx` or `.hsaco` of that name beside it can be read".to_owned();
        Ok(ModuleText { code: Some(found.ok_or_else(missing)?), ..metadata })
    }

    /// Renames the uses of modules in declarations, and of the own names of a module.
    fn rename(
        &mut self,
        decls: &mut [Decl],
        names: &mut Interner,
        own: Option<&Module>,
        uses: &FxHashMap<Symbol, String>,
    ) {
        let (mut errors, mut unknown) = (Vec::new(), std::mem::take(&mut self.unknown));
        for decl in decls {
            let mut locals = FxHashSet::default();
            if own.is_some() {
                collect_locals(decl, &mut locals);
            }
            let mut renaming = Renaming {
                names,
                own,
                uses,
                modules: &self.modules,
                locals,
                errors: &mut errors,
                unknown: &mut unknown,
            };
            renaming.decl(decl);
        }
        self.errors.extend(boxed(errors));
        self.unknown = unknown;
    }
}

/// Renames within one declaration.
struct Renaming<'a> {
    names: &'a mut Interner,
    /// The module that the declaration belongs to; `None` for the workload.
    own: Option<&'a Module>,
    uses: &'a FxHashMap<Symbol, String>,
    modules: &'a FxHashMap<String, Option<Module>>,
    /// Names that the declaration introduces: arguments, labels, local values.
    locals: FxHashSet<Symbol>,
    errors: &'a mut Vec<ModelError>,
    /// Names that the text expects of a module but the module lacks.
    unknown: &'a mut Vec<Name>,
}

impl Renaming<'_> {
    fn decl(&mut self, decl: &mut Decl) {
        if let (
            Some(own),
            DeclKind::Let(Binding { name, .. }) | DeclKind::Def { name, .. } | DeclKind::Kernel { name, .. },
        ) = (self.own, &mut decl.kind)
        {
            name.symbol = self.prefixed(&own.prefix, name.symbol);
        }
        if let DeclKind::Kernel { references, .. } = &mut decl.kind {
            let mut references = std::mem::take(references);
            references.iter_mut().for_each(|reference| self.call(reference));
            decl.children_mut(&mut |child| self.child(child));
            if let DeclKind::Kernel { references: emptied, .. } = &mut decl.kind {
                *emptied = references;
            }
            return;
        }
        if !matches!(decl.kind, DeclKind::Use { .. }) {
            decl.children_mut(&mut |child| self.child(child));
        }
    }

    fn child(&mut self, child: ChildMut) {
        match child {
            ChildMut::Name(_) => {}
            ChildMut::Expr(expr) => self.expr(expr),
            ChildMut::Block(block) => block.stmts.iter_mut().for_each(|stmt| self.stmt(stmt)),
        }
    }

    fn stmt(&mut self, stmt: &mut Stmt) {
        match &mut stmt.kind {
            StmtKind::Call(call) => self.call(call),
            _ => stmt.children_mut(&mut |child| self.child(child)),
        }
    }

    fn call(&mut self, call: &mut Call) {
        self.callee(&mut call.callee);
        // A bare name after an option may be a word of the operation, such as `op: mean`.
        for option in &mut call.options {
            let own = option.value.as_name().is_some_and(|name| self.is_own(name));
            if own || option.value.as_name().is_none() {
                self.expr(&mut option.value);
            }
        }
        let options = std::mem::take(&mut call.options);
        call.children_mut(&mut |child| self.child(child));
        call.options = options;
    }

    /// Replaces `blocks.attention` by one name, and a definition of the own module by its full name.
    fn callee(&mut self, callee: &mut Vec<Name>) {
        match callee.as_slice() {
            [module, name] if self.uses.contains_key(&module.symbol) && !self.locals.contains(&module.symbol) => {
                let (module, name) = (*module, *name);
                if let Some(symbol) = self.member(module.symbol, name) {
                    *callee = vec![Name { symbol, span: module.span.to(name.span) }];
                }
            }
            [name] if self.is_own(name.symbol) => {
                let prefix = self.own.map(|own| own.prefix.as_str()).unwrap_or_default();
                callee[0].symbol = self.prefixed(prefix, callee[0].symbol);
            }
            _ => {}
        }
    }

    fn expr(&mut self, expr: &mut Expr) {
        match &expr.kind {
            ExprKind::Name(symbol) => {
                let symbol = *symbol;
                if let Some(own) = self.own.filter(|_| !self.locals.contains(&symbol) && !self.is_builtin(symbol)) {
                    // An unknown name gets the prefix too, so that it cannot refer to a name of the workload.
                    expr.kind = ExprKind::Name(self.prefixed(&own.prefix, symbol));
                }
            }
            ExprKind::Field { base, name } => match base.as_name() {
                Some(module) if self.uses.contains_key(&module) && !self.locals.contains(&module) => {
                    let name = *name;
                    if let Some(symbol) = self.member(module, name) {
                        expr.kind = ExprKind::Name(symbol);
                    }
                }
                _ => expr.children_mut(&mut |child| self.child(child)),
            },
            _ => expr.children_mut(&mut |child| self.child(child)),
        }
    }

    /// The full name of a member of a module. Reports a name that the module does not have. `None` if the module could not
    /// be linked.
    fn member(&mut self, module: Symbol, name: Name) -> Option<Symbol> {
        let Some(Some(linked)) = self.uses.get(&module).map(|name| self.modules.get(name))?.map(Option::as_ref) else {
            return None;
        };
        if linked.declared.contains(&name.symbol) {
            return Some(self.prefixed(&linked.prefix, name.symbol));
        }
        if !linked.broken {
            let member = self.names.name(name.symbol).to_owned();
            let mut known: Vec<&str> = linked.declared.iter().map(|&known| self.names.name(known)).collect();
            known.sort_unstable();
            let help = suggest::did_you_mean(&member, known.iter().copied())
                .or_else(|| (!known.is_empty()).then(|| format!("it has {}", suggest::listed(&known))));
            let module = self.names.name(module).to_owned();
            self.errors.push(ModelError::UnknownMember { name: module, member, at: name.span.into(), help });
        }
        let full = prefixed(self.names, &linked.prefix, name);
        self.unknown.push(full);
        Some(full.symbol)
    }

    fn is_own(&self, symbol: Symbol) -> bool {
        self.own.is_some_and(|own| own.declared.contains(&symbol)) && !self.locals.contains(&symbol)
    }

    /// True for names that every file has.
    fn is_builtin(&self, symbol: Symbol) -> bool {
        let name = self.names.name(symbol);
        ["rank", "world", "iteration", "main", "_"].contains(&name)
            || DType::from_name(name).is_some()
            || self.uses.contains_key(&symbol)
    }

    fn prefixed(&mut self, prefix: &str, symbol: Symbol) -> Symbol {
        prefixed(self.names, prefix, Name { symbol, span: SrcSpan::default() }).symbol
    }
}

/// The full name of a module's own name.
fn prefixed(names: &mut Interner, prefix: &str, name: Name) -> Name {
    let full = format!("{prefix}.{}", names.name(name.symbol));
    Name { symbol: names.intern(&full), span: name.span }
}

/// The name that a module's declaration makes visible; `None` if it makes none visible.
fn declared(decl: &Decl) -> Option<Symbol> {
    match &decl.kind {
        DeclKind::Let(Binding { name, .. }) | DeclKind::Def { name, .. } | DeclKind::Kernel { name, .. } => {
            Some(name.symbol)
        }
        _ => None,
    }
}

/// Collects the names that a definition introduces.
fn collect_locals(decl: &Decl, locals: &mut FxHashSet<Symbol>) {
    if let DeclKind::Kernel { signature, .. } = &decl.kind {
        locals.extend(signature.inputs.iter().chain(&signature.outputs).map(|param| param.name.symbol));
        locals.extend(signature.sizes().iter().map(|size| size.symbol));
    }
    let DeclKind::Def { signature, body, .. } = &decl.kind else { return };
    locals.extend(signature.inputs.iter().chain(&signature.outputs).map(|param| param.name.symbol));
    syntax::walk::block(body, &mut |stmt| match &stmt.kind {
        StmtKind::Let(Binding { name, .. }) | StmtKind::For { variable: name, .. } => drop(locals.insert(name.symbol)),
        StmtKind::Buffer(buffer) => locals.extend(buffer.families.iter().map(|family| family.name.symbol)),
        StmtKind::Call(Call { label: Some(label), .. }) => drop(locals.insert(label.name.symbol)),
        _ => {}
    });
}

/// The path of a `use` as written: the text between quotes, or the names joined by dots.
fn written(what: &Expr, names: &Interner) -> String {
    match &what.kind {
        ExprKind::Text(text) => text.clone(),
        _ => syntax::written(what, names),
    }
}

/// The name under which a module is used: the last part of its path.
fn short_name(path: &str) -> &str {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.strip_suffix(".aorta").unwrap_or_else(|| file.rsplit('.').next().unwrap_or(file))
}

/// True if a declaration could have this name.
fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        && !syntax::RESERVED.contains(&text)
}
