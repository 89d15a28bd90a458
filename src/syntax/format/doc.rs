//! A document printer in the manner of Oppen and Wadler: a document is a list of commands in which groups are marked.
//! A group is printed on one line where it fits; else each of its own line breaks becomes one. Knows nothing of the
//! language.

/// Columns of a line.
pub const WIDTH: usize = 100;

/// Columns between code and the comment behind it.
const BEFORE_COMMENT: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Command<'a> {
    /// Text as it stands; it may have line breaks of its own.
    Text(&'a str),
    /// A space, unless a line begins here.
    Space,
    /// A line break where the group is broken; else a space or nothing.
    Line(Flat),
    /// A line break in a broken group only where what follows, up to the next `Fill` of the group, would not fit.
    Fill,
    /// A line break.
    Hard,
    /// An empty line.
    Blank,
    /// So many line breaks at once, and then this indentation, whatever the indentation is here.
    Raw(usize, &'a str),
    /// A text that a broken group has, and one on a line has not.
    IfBroken(&'a str),
    /// A comment at the end of the line.
    Trailing(&'a str),
    /// A comment on a line of its own.
    Own(&'a str),
    /// From here to the matching `Dedent`, lines are indented by so much more than the one that the next text stands
    /// on.
    Indent(usize),
    /// The same, by so much more than lines were before this command.
    Nest(usize),
    Dedent,
    Open,
    Close,
}

/// What a line break is in a group on one line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Flat {
    Space,
    Nothing,
}

/// What stands between what was printed and the next text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pending {
    Space,
    Line,
    Blank,
}

/// A comment to be put at the end of a line, once it is known where those of the neighbouring lines stand.
struct Mark<'a> {
    /// Where in the output.
    at: usize,
    line: usize,
    column: usize,
    indent: usize,
    comment: &'a str,
}

/// Prints documents one below the other.
pub struct Printer<'a> {
    out: String,
    marks: Vec<Mark<'a>>,
    line: usize,
    column: usize,
    /// The indentation of the current line.
    indent: usize,
    indents: Vec<usize>,
    pending: Option<Pending>,
    /// For each group that is open, whether it is broken.
    broken: Vec<bool>,
}

impl<'a> Printer<'a> {
    pub fn new() -> Printer<'a> {
        Printer {
            out: String::new(),
            marks: Vec::new(),
            line: 0,
            column: 0,
            indent: 0,
            indents: Vec::new(),
            pending: Some(Pending::Line),
            broken: Vec::new(),
        }
    }

    pub fn print(&mut self, commands: &[Command<'a>]) {
        let measures = Measures::of(commands);
        for (index, &command) in commands.iter().enumerate() {
            match command {
                Command::Text(text) => self.text(text),
                Command::Space => self.wait_for(Pending::Space),
                Command::Line(_) if self.is_broken() => self.wait_for(Pending::Line),
                Command::Line(Flat::Space) => self.wait_for(Pending::Space),
                Command::Line(Flat::Nothing) => {}
                Command::Fill => {
                    let broken = self.is_broken() && self.next_column() + 1 + measures.behind(index) > WIDTH;
                    self.wait_for(if broken { Pending::Line } else { Pending::Space });
                }
                Command::Hard => self.wait_for(Pending::Line),
                Command::Blank => self.wait_for(Pending::Blank),
                Command::Raw(lines, indent) => self.raw(lines, indent),
                Command::IfBroken(text) if self.is_broken() => self.text(text),
                Command::IfBroken(_) => {}
                Command::Trailing(comment) => {
                    let (at, line) = (self.out.len(), self.line);
                    self.marks.push(Mark { at, line, column: self.column, indent: self.indent, comment });
                    self.wait_for(Pending::Line);
                }
                Command::Own(comment) => {
                    self.wait_for(Pending::Line);
                    self.text(comment);
                    self.wait_for(Pending::Line);
                }
                Command::Indent(more) => {
                    self.go_on();
                    self.indents.push(self.indent + more);
                }
                Command::Nest(more) => self.indents.push(self.top() + more),
                Command::Dedent => {
                    self.indents.pop();
                }
                Command::Open => {
                    // Inside a group on one line, all is.
                    let flat = self.broken.last() == Some(&false)
                        || (!measures.is_split(index) && self.next_column() + measures.reach(index) <= WIDTH);
                    self.broken.push(!flat);
                }
                Command::Close => {
                    self.broken.pop();
                }
            }
        }
    }

    /// Everything, with the comments at the ends of lines in their places.
    pub fn finish(mut self) -> String {
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        let mut text = String::with_capacity(self.out.len());
        let mut done = 0;
        let aligned = |a: &Mark, b: &Mark| {
            // A line that is too long by itself moves no other comment.
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

    /// The column at which the next text begins.
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

    /// Puts out what stands before the next text.
    fn go_on(&mut self) {
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
        self.go_on();
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

/// How much room commands need, all worked out in two walks so that printing takes linear time.
struct Measures {
    /// For each command, the columns of all before it, were they on one line.
    before: Vec<usize>,
    /// For each `Open` and `Fill`, the value of `before` at the next place where a line may end: behind the group, or
    /// behind the item.
    end: Vec<usize>,
    /// For each `Open`, whether the group has a line break anyway.
    split: Vec<bool>,
}

impl Measures {
    fn of(commands: &[Command<'_>]) -> Measures {
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

    /// Walks backwards. For each group that is open there, `groups` knows where the line may end behind its next
    /// `Fill`, and whether something in it breaks it.
    fn find_ends(&mut self, commands: &[Command<'_>], columns: usize) {
        // Where the next line break may be.
        let mut next = columns;
        let mut groups: Vec<(usize, usize, bool)> = Vec::new();
        for (index, command) in commands.iter().enumerate().rev() {
            match command {
                Command::Close => groups.push((next, next, false)),
                Command::Open => {
                    let Some((_, end, split)) = groups.pop() else { continue };
                    self.end[index] = end;
                    self.split[index] = split;
                    if let Some(outer) = groups.last_mut() {
                        outer.2 |= split;
                    }
                }
                Command::Fill => {
                    if let Some((fill, _, _)) = groups.last_mut() {
                        self.end[index] = *fill;
                        *fill = self.before[index];
                    }
                    next = self.before[index];
                }
                Command::Line(_) => next = self.before[index],
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

    /// The columns that a group needs on one line, with what has to follow it there.
    fn reach(&self, open: usize) -> usize {
        self.end[open] - self.before[open]
    }

    /// The columns of what stands behind a `Fill`.
    fn behind(&self, fill: usize) -> usize {
        self.end[fill].saturating_sub(self.before[fill + 1])
    }

    fn is_split(&self, open: usize) -> bool {
        self.split[open]
    }
}

fn flat_width(command: &Command<'_>) -> usize {
    match command {
        Command::Text(text) => width(text),
        Command::Raw(0, indent) => width(indent),
        Command::Space | Command::Line(Flat::Space) | Command::Fill => 1,
        _ => 0,
    }
}

/// Whether a line ends here in any case.
fn breaks(command: &Command<'_>) -> bool {
    match command {
        Command::Hard | Command::Blank | Command::Trailing(_) | Command::Own(_) => true,
        Command::Raw(lines, _) => *lines > 0,
        Command::Text(text) => text.contains('\n'),
        _ => false,
    }
}

/// The columns that a command that breaks the line needs before it does.
fn first_line(command: &Command<'_>) -> usize {
    match command {
        Command::Text(text) => width(text.split('\n').next().unwrap_or("")),
        _ => 0,
    }
}
