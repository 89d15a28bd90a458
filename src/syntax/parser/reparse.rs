//! Reparses an edited text for editors. Only pieces that the edit touches are parsed.
//!
//! A piece is a simple declaration or statement, or the head of one with a block. Its tree depends on its own text
//! alone, so a piece outside of the edit keeps its tree, moved to its new location. The splitter processes all of the
//! new text, because an edit may open a block or remove a bracket; this costs little compared with the grammar.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::super::walk::ChildMut;
use super::*;

/// An edit: the bytes at `range` were replaced by `len` bytes.
#[derive(Clone, Debug)]
pub struct Edit {
    /// Byte range in the text before the edit.
    pub range: Range<usize>,
    /// Length of the replacement in bytes.
    pub len: usize,
}

/// The result of reparsing.
#[derive(Debug)]
pub struct Reparsed {
    /// The tree that [`parse`] returns for the new text, except for the numbers of symbols: symbols of the old tree
    /// keep theirs, even if no longer used.
    pub ast: Ast,
    /// Errors of the new text, as [`parse`] returns them.
    pub errors: Vec<SyntaxError>,
    /// Number of pieces that were parsed: heads of blocks, and declarations and statements without a block. All others
    /// are taken from the old tree.
    pub parsed: usize,
}

/// Parses an edited text; `before` is the tree of the text before the edit, whatever its errors were. Both texts lie at
/// `base` of the source map; `text` is the new one.
///
/// ```
/// use aorta::syntax::{Edit, SyntaxLimits, parse, reparse};
///
/// let (before, _) = parse("step { nop()  map(x + 1 -> y) }", 0, &SyntaxLimits::default());
/// // `1` becomes `20`.
/// let edit = Edit { range: 22..23, len: 2 };
/// let after = reparse(before, &edit, "step { nop()  map(x + 20 -> y) }", 0, &SyntaxLimits::default());
/// assert_eq!((after.errors.len(), after.parsed), (0, 1));
/// ```
pub fn reparse(before: Ast, edit: &Edit, text: &str, base: u32, limits: &SyntaxLimits) -> Reparsed {
    if text.len() > limits.file_bytes {
        let (ast, errors) = parse(text, base, limits);
        return Reparsed { ast, errors, parsed: 0 };
    }
    let Built { ast, errors, parsed, .. } = parse_with(text, base, limits, OldTrees::new(before, edit, base));
    Reparsed { ast, errors, parsed }
}

/// Trees of the pieces that an edit does not touch, by the piece's location in the new text and by whether a block
/// followed. The blocks of heads are empty.
#[derive(Default)]
pub struct OldTrees {
    pub names: Interner,
    decls: FxHashMap<(SrcSpan, bool), DeclKind>,
    stmts: FxHashMap<(SrcSpan, bool), StmtKind>,
    conditions: FxHashMap<SrcSpan, Expr>,
}

impl OldTrees {
    /// Returns an empty set of trees, with the names of another text.
    pub fn with_names(names: Interner) -> OldTrees {
        OldTrees { names, ..OldTrees::default() }
    }

    fn new(before: Ast, edit: &Edit, base: u32) -> OldTrees {
        let mut old = OldTrees { names: before.names, ..OldTrees::default() };
        let edited = Edited {
            start: base + edit.range.start as u32,
            end: base + edit.range.end as u32,
            by: edit.len as i64 - edit.range.len() as i64,
        };
        for mut decl in before.decls {
            let moved = edited.moved(decl.span);
            decl.children_mut(&mut |child| old.child(child, moved, &edited));
            if let (Some(moved), DeclKind::Kernel { references, .. }) = (moved, &mut decl.kind) {
                references.iter_mut().for_each(|reference| reference.span = moved.place(reference.span));
            }
            if let Some(moved) = moved {
                old.decls.insert((moved.place(decl.span), decl.body().is_some()), decl.kind);
            }
        }
        old
    }

    /// Takes the declaration at a location, with an empty block; `None` if the old tree has none there.
    pub fn decl(&mut self, place: SrcSpan, has_block: bool) -> Option<DeclKind> {
        self.decls.remove(&(place, has_block))
    }

    /// Takes the statement at a location, with an empty block, never an `if`; `None` if the old tree has none there.
    pub fn stmt(&mut self, place: SrcSpan, has_block: bool) -> Option<StmtKind> {
        self.stmts.remove(&(place, has_block))
    }

    /// Takes the condition of the arm at a location; `None` if the old tree has none there.
    pub fn condition(&mut self, place: SrcSpan) -> Option<Expr> {
        self.conditions.remove(&place)
    }

    /// Moves a part of a head, and adds the statements of a block. If the edit touches the head, `moved` is `None` and
    /// none of its parts are reused.
    fn child(&mut self, child: ChildMut, moved: Option<ByteShift>, edited: &Edited) {
        match (child, moved) {
            (ChildMut::Block(block), _) => {
                for stmt in std::mem::take(&mut block.stmts) {
                    self.add_stmt(stmt, edited);
                }
            }
            (ChildMut::Name(name), Some(moved)) => name.span = moved.place(name.span),
            (ChildMut::Expr(expr), Some(moved)) => {
                expr.span = moved.place(expr.span);
                expr.children_mut(&mut |child| self.child(child, Some(moved), edited));
            }
            (ChildMut::Name(_) | ChildMut::Expr(_), None) => {}
        }
    }

    fn add_stmt(&mut self, mut stmt: Stmt, edited: &Edited) {
        if let StmtKind::If { arms, otherwise } = stmt.kind {
            for mut arm in arms {
                let moved = edited.moved(arm.span);
                self.child(ChildMut::Expr(&mut arm.condition), moved, edited);
                self.child(ChildMut::Block(&mut arm.body), moved, edited);
                if let Some(moved) = moved {
                    self.conditions.insert(moved.place(arm.span), arm.condition);
                }
            }
            if let Some(mut block) = otherwise {
                self.child(ChildMut::Block(&mut block), None, edited);
            }
            return;
        }
        let moved = edited.moved(stmt.span);
        stmt.children_mut(&mut |child| self.child(child, moved, edited));
        let Some(moved) = moved else { return };
        if let StmtKind::Call(call) = &mut stmt.kind {
            call.span = moved.place(call.span);
        }
        let has_block = !stmt.blocks().is_empty();
        self.stmts.insert((moved.place(stmt.span), has_block), stmt.kind);
    }
}

/// The range of the old text that an edit replaces, in the source map, and the growth of the text in bytes.
struct Edited {
    start: u32,
    end: u32,
    by: i64,
}

/// Number of bytes by which a tree moves.
#[derive(Clone, Copy)]
struct ByteShift(i64);

impl Edited {
    /// Returns the shift of a range; `None` if the edit touches it.
    fn moved(&self, span: SrcSpan) -> Option<ByteShift> {
        match span {
            _ if span.end() <= self.start => Some(ByteShift(0)),
            _ if span.start >= self.end => Some(ByteShift(self.by)),
            _ => None,
        }
    }
}

impl ByteShift {
    fn place(self, span: SrcSpan) -> SrcSpan {
        SrcSpan { start: (i64::from(span.start) + self.0) as u32, len: span.len }
    }
}
