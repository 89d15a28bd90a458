//! A document printer in the manner of Oppen and Wadler. A document is a list of commands with marked groups. A group
//! is printed on one line if it fits; otherwise each of its own line breaks is printed. Independent of the language.

/// Maximum columns of a line.
pub const WIDTH: usize = 100;

/// Columns between code and a comment after it.
const BEFORE_COMMENT: usize = 2;

/// A command of the printer: a text, a possible line break, or the limits of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LayoutCommand<'a> {
    /// Text as it is; it may contain line breaks.
    Text(&'a str),
    /// A space, except at the beginning of a line.
    Space,
    /// A line break in a broken group; otherwise a space or nothing.
    Line(Flat),
    /// A line break in a broken group, only if the text up to the next `Fill` of the group would not fit.
    Fill,
    /// A line break.
    Hard,
    /// An empty line.
    Blank,
    /// Several line breaks and then a literal indentation.
    Raw(usize, &'a str),
    /// Text that is printed only in a broken group.
    IfBroken(&'a str),
    /// A comment at the end of the line.
    Trailing(&'a str),
    /// A comment on a line of its own.
    Own(&'a str),
    /// Until the matching `Dedent`, indents lines by this much more than the line of the next text.
    Indent(usize),
    /// Until the matching `Dedent`, indents lines by this much more than before this command.
    Nest(usize),
    Dedent,
    Open,
    Close,
}

/// The text of a line break in a group on one line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Flat {
    Space,
    Nothing,
}

/// The white space to print before the next text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pending {
    Space,
    Line,
    Blank,
}

/// A comment at the end of a line, positioned once the columns of neighbouring comments are known.
struct Mark<'a> {
    /// Position in the output.
    at: usize,
    line: usize,
    column: usize,
    indent: usize,
    comment: &'a str,
}

/// Prints documents one below the other.
#[derive(Default)]
pub struct Printer<'a> {
    out: String,
    marks: Vec<Mark<'a>>,
    line: usize,
    column: usize,
    /// Indentation of the current line.
    indent: usize,
    indents: Vec<usize>,
    pending: Option<Pending>,
    /// For each open group, whether it is broken.
    broken: Vec<bool>,
}

impl<'a> Printer<'a> {
    pub fn new() -> Printer<'a> {
        Printer { pending: Some(Pending::Line), ..Printer::default() }
    }

    pub fn print(&mut self, commands: &[LayoutCommand<'a>]) {
        let measures = Measures::of(commands);
        for (index, &command) in commands.iter().enumerate() {
            match command {
                LayoutCommand::Text(text) => self.text(text),
                LayoutCommand::Space => self.wait_for(Pending::Space),
                LayoutCommand::Line(_) if self.is_broken() => self.wait_for(Pending::Line),
                LayoutCommand::Line(Flat::Space) => self.wait_for(Pending::Space),
                LayoutCommand::Line(Flat::Nothing) => {}
                LayoutCommand::Fill => {
                    let broken = self.is_broken() && self.next_column() + 1 + measures.behind(index) > WIDTH;
                    self.wait_for(if broken { Pending::Line } else { Pending::Space });
                }
                LayoutCommand::Hard => self.wait_for(Pending::Line),
                LayoutCommand::Blank => self.wait_for(Pending::Blank),
                LayoutCommand::Raw(lines, indent) => self.raw(lines, indent),
                LayoutCommand::IfBroken(text) if self.is_broken() => self.text(text),
                LayoutCommand::IfBroken(_) => {}
                LayoutCommand::Trailing(comment) => {
                    let (at, line) = (self.out.len(), self.line);
                    self.marks.push(Mark { at, line, column: self.column, indent: self.indent, comment });
                    self.wait_for(Pending::Line);
                }
                LayoutCommand::Own(comment) => {
                    self.wait_for(Pending::Line);
                    self.text(comment);
                    self.wait_for(Pending::Line);
                }
                LayoutCommand::Indent(more) => {
                    self.print_pending();
                    self.indents.push(self.indent + more);
                }
                LayoutCommand::Nest(more) => self.indents.push(self.top() + more),
                LayoutCommand::Dedent => {
                    self.indents.pop();
                }
                LayoutCommand::Open => {
                    // In a group on one line, inner groups are on that line too.
                    let flat = self.broken.last() == Some(&false)
                        || (!measures.split[index] && self.next_column() + measures.reach(index) <= WIDTH);
                    self.broken.push(!flat);
                }
                LayoutCommand::Close => {
                    self.broken.pop();
                }
            }
        }
    }

    /// Returns the output, with comments at the ends of lines aligned.
    pub fn finish(mut self) -> String {
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        let mut text = String::with_capacity(self.out.len());
        let mut done = 0;
        let aligned = |a: &Mark, b: &Mark| {
            // A line that exceeds the width does not move other comments.
            a.line + 1 == b.line && a.indent == b.indent && a.column <= WIDTH && b.column <= WIDTH
        };
        for run in self.marks.chunk_by(aligned) {
            let column = run.iter().map(|mark| mark.column).max().unwrap_or(0) + BEFORE_COMMENT;
            for mark in run {
                text.push_str(&self.out[done..mark.at]);
                text.extend(std::iter::repeat_n(' ', column - mark.column));
                text.push_str(mark.comment);
                done = mark.at;
            }
        }
        text.push_str(&self.out[done..]);
        text
    }

    fn is_broken(&self) -> bool {
        self.broken.last().is_none_or(|broken| *broken)
    }

    fn top(&self) -> usize {
        self.indents.last().copied().unwrap_or(0)
    }

    fn begins_line(&self) -> bool {
        self.pending >= Some(Pending::Line)
    }

    /// Column at which the next text begins.
    fn next_column(&self) -> usize {
        match self.pending {
            _ if self.begins_line() => self.top(),
            Some(Pending::Space) => self.column + 1,
            _ => self.column,
        }
    }

    fn wait_for(&mut self, pending: Pending) {
        self.pending = self.pending.max(Some(pending));
    }

    /// Prints the pending space or line breaks.
    fn print_pending(&mut self) {
        match self.pending.take() {
            Some(Pending::Line | Pending::Blank) if self.out.is_empty() => self.begin_line(0),
            Some(Pending::Blank) => self.begin_line(2),
            Some(Pending::Line) => self.begin_line(1),
            Some(Pending::Space) => {
                self.out.push(' ');
                self.column += 1;
            }
            None => {}
        }
    }

    fn text(&mut self, text: &str) {
        self.print_pending();
        self.out.push_str(text);
        match text.rfind('\n') {
            None => self.column += width(text),
            Some(last) => {
                self.line += text.bytes().filter(|byte| *byte == b'\n').count();
                self.column = width(&text[last + 1..]);
            }
        }
    }

    fn begin_line(&mut self, breaks: usize) {
        self.indent = self.top();
        self.column = self.indent;
        self.line += breaks;
        self.out.extend(std::iter::repeat_n('\n', breaks));
        self.out.extend(std::iter::repeat_n(' ', self.indent));
    }

    fn raw(&mut self, lines: usize, indent: &str) {
        self.pending = None;
        self.line += lines;
        self.column = width(indent) + if lines == 0 { self.column } else { 0 };
        self.out.extend(std::iter::repeat_n('\n', lines));
        self.out.push_str(indent);
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// Widths of commands, computed in two walks so that printing takes linear time.
struct Measures {
    /// For each command, the columns of all commands before it, if they were on one line.
    before: Vec<usize>,
    /// For each `Open` and `Fill`, the value of `before` at the next possible line end: after the group, or after the
    /// item.
    end: Vec<usize>,
    /// For each `Open`, true if the group contains a mandatory line break.
    split: Vec<bool>,
}

impl Measures {
    fn of(commands: &[LayoutCommand<'_>]) -> Measures {
        let count = commands.len();
        let mut before = Vec::with_capacity(count + 1);
        let mut columns = 0;
        for command in commands {
            before.push(columns);
            columns += flat_width(command);
        }
        before.push(columns);
        let mut measures = Measures { before, end: vec![0; count], split: vec![false; count] };
        measures.find_ends(commands, columns);
        measures
    }

    /// Walks backwards. For each open group, `groups` holds where the line may end after its next `Fill`, and whether
    /// it contains a mandatory line break.
    fn find_ends(&mut self, commands: &[LayoutCommand<'_>], columns: usize) {
        // Position of the next possible line break.
        let mut next = columns;
        let mut groups: Vec<(usize, usize, bool)> = Vec::new();
        for (index, command) in commands.iter().enumerate().rev() {
            match command {
                LayoutCommand::Close => groups.push((next, next, false)),
                LayoutCommand::Open => {
                    let Some((_, end, split)) = groups.pop() else { continue };
                    self.end[index] = end;
                    self.split[index] = split;
                    if let Some(outer) = groups.last_mut() {
                        outer.2 |= split;
                    }
                }
                LayoutCommand::Fill => {
                    if let Some((fill, _, _)) = groups.last_mut() {
                        self.end[index] = *fill;
                        *fill = self.before[index];
                    }
                    next = self.before[index];
                }
                LayoutCommand::Line(_) => next = self.before[index],
                _ if breaks(command) => {
                    next = self.before[index] + first_line(command);
                    if let Some(group) = groups.last_mut() {
                        group.2 = true;
                    }
                }
                _ => {}
            }
        }
    }

    /// Columns of a group on one line, including the text that must follow it there.
    fn reach(&self, open: usize) -> usize {
        self.end[open] - self.before[open]
    }

    /// Columns of the text after a `Fill`.
    fn behind(&self, fill: usize) -> usize {
        self.end[fill].saturating_sub(self.before[fill + 1])
    }
}

fn flat_width(command: &LayoutCommand<'_>) -> usize {
    match command {
        LayoutCommand::Text(text) => width(text),
        LayoutCommand::Raw(0, indent) => width(indent),
        LayoutCommand::Space | LayoutCommand::Line(Flat::Space) | LayoutCommand::Fill => 1,
        _ => 0,
    }
}

/// True for a mandatory line break.
fn breaks(command: &LayoutCommand<'_>) -> bool {
    match command {
        LayoutCommand::Hard | LayoutCommand::Blank | LayoutCommand::Trailing(_) | LayoutCommand::Own(_) => true,
        LayoutCommand::Raw(lines, _) => *lines > 0,
        LayoutCommand::Text(text) => text.contains('\n'),
        _ => false,
    }
}

/// Columns that a command with a line break needs before the break.
fn first_line(command: &LayoutCommand<'_>) -> usize {
    match command {
        LayoutCommand::Text(text) => width(text.split('\n').next().unwrap_or("")),
        _ => 0,
    }
}
