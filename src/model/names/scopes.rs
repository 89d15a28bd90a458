//! Scopes of names. Names are numbers, so a lookup is two array accesses.

use crate::base::Symbol;

use crate::model::values::value::Value;

/// The value of a name in a scope.
#[derive(Debug)]
struct ScopeEntry {
    value: Value,
    /// The frame of the scope.
    frame: u32,
}

/// Nested scopes inside frames. Declarations are frame 0; the step and each call of a `def` have their own. A body sees
/// its own frame and the declarations, but not its caller's names.
#[derive(Debug, Default)]
pub struct Scopes {
    entries: Vec<Vec<ScopeEntry>>,
    /// For each open scope, the names that end with it.
    open: Vec<Vec<Symbol>>,
    /// Reused vectors of closed scopes.
    spare: Vec<Vec<Symbol>>,
    /// For each frame, the index of its first scope.
    frames: Vec<usize>,
}

impl Scopes {
    pub fn new() -> Self {
        Scopes { entries: Vec::new(), open: vec![Vec::new()], spare: Vec::new(), frames: vec![0] }
    }

    fn frame(&self) -> u32 {
        self.frames.len() as u32 - 1
    }

    /// Opens a frame, the scopes of a definition's body, with its outermost scope.
    pub fn enter_frame(&mut self) {
        self.frames.push(self.open.len());
        self.enter();
    }

    /// Closes the frame and returns the names of its outermost scope with their values.
    pub fn leave_frame(&mut self) -> Vec<(Symbol, Value)> {
        let first = self.frames.pop().expect("a frame was entered");
        while self.open.len() > first + 1 {
            self.close();
        }
        self.leave()
    }

    /// Opens a scope.
    pub fn enter(&mut self) {
        self.open.push(self.spare.pop().unwrap_or_default());
    }

    /// Closes the innermost scope and returns its names with their values.
    pub fn leave(&mut self) -> Vec<(Symbol, Value)> {
        let mut names = Vec::new();
        self.end(|name, value| names.push((name, value)));
        names
    }

    /// Closes the innermost scope.
    pub fn close(&mut self) {
        self.end(|_, _| {});
    }

    fn end(&mut self, mut each: impl FnMut(Symbol, Value)) {
        let mut names = self.open.pop().expect("a scope was entered");
        for name in names.drain(..) {
            let entry = self.entries[name.0 as usize].pop().expect("declared with the scope");
            each(name, entry.value);
        }
        self.spare.push(names);
    }

    /// Declares a name in the innermost scope.
    pub fn declare(&mut self, name: Symbol, value: Value) {
        let scope = self.open.len() - 1;
        self.declare_at(scope, name, value);
    }

    /// Declares a name in the outermost scope of the frame, visible in the rest of the step or `def`.
    pub fn declare_in_frame(&mut self, name: Symbol, value: Value) {
        let scope = *self.frames.last().expect("there is always a frame");
        self.declare_at(scope, name, value);
    }

    fn declare_at(&mut self, scope: usize, name: Symbol, value: Value) {
        let index = name.0 as usize;
        if self.entries.len() <= index {
            self.entries.resize_with(index + 1, Vec::new);
        }
        let frame = self.frame();
        self.entries[index].push(ScopeEntry { value, frame });
        self.open[scope].push(name);
    }

    /// Returns the value of a name that is visible in the open frame; `None` for any other name.
    pub fn get(&self, name: Symbol) -> Option<&Value> {
        let entries = self.entries.get(name.0 as usize)?;
        let last = entries.last()?;
        if last.frame == self.frame() || last.frame == 0 {
            return Some(&last.value);
        }
        entries.first().filter(|entry| entry.frame == 0).map(|entry| &entry.value)
    }

    /// True if the name is visible in the open frame: as a local name or a declaration.
    pub fn in_frame(&self, name: Symbol) -> bool {
        self.entries
            .get(name.0 as usize)
            .and_then(|entries| entries.last())
            .is_some_and(|entry| entry.frame == self.frame())
    }
}
