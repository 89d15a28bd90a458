//! Pieces to tree, by pest. The only file that knows `pest::Rule`.

use pest::Parser as _;
use pest::error::ErrorVariant;
use pest::iterators::{Pair, Pairs};
use pest::pratt_parser::{Assoc, Op, PrattParser};
use std::sync::LazyLock;

use crate::base::units::{self, UNITS};
use crate::base::{Interner, SrcSpan, suggest};

use super::Limits;
use super::ast::*;
use super::error::SyntaxError;
use super::split::{self, Body, Piece};

#[derive(pest_derive::Parser)]
#[grammar = "../grammar/aorta.pest"]
struct Grammar;

/// Levels that an expression's tree may have: what evaluates it may recurse that deep.
const MAX_EXPRESSION_DEPTH: usize = 256;

/// Calls that may be under way while a tree is built: several for each level of brackets.
const MAX_RECURSION: usize = 6 * MAX_EXPRESSION_DEPTH;

/// Parses a file whose text lies at `base` of the source map. The tree holds whatever could be understood;
/// the errors are all that the text has, in the order of their places.
pub fn parse(text: &str, base: u32, limits: &Limits) -> (Ast, Vec<SyntaxError>) {
    if text.len() > limits.file_bytes {
        let error = SyntaxError::FileTooLarge { limit: limits.file_bytes };
        return (Ast::default(), vec![error]);
    }
    let mut errors = Vec::new();
    let pieces = split::split(text, base, limits.nesting, &mut errors);
    let mut builder = Builder {
        text,
        base,
        names: Interner::default(),
        errors: Vec::new(),
        broken: errors.iter().map(SyntaxError::offset).collect(),
        level: 0,
    };
    let about = pieces.about.iter().map(|&span| builder.doc(span)).collect();
    let decls = pieces.decls.into_iter().filter_map(|piece| builder.decl(piece)).collect();
    let names = builder.names;
    errors.append(&mut builder.errors);
    errors.sort_by_key(SyntaxError::offset);
    (Ast { about, decls, names }, errors)
}

/// Parses an expression alone, such as the value of `--set`, with names interned in `names`.
pub fn parse_expr(text: &str, base: u32, limits: &Limits, names: &mut Interner) -> Result<Expr, Vec<SyntaxError>> {
    let mut errors = Vec::new();
    // The splitter checks the nesting; its pieces are not needed.
    let _ = split::split(&format!("let value = {text}"), base, limits.nesting, &mut errors);
    if let Some(error) = errors.into_iter().find(|error| matches!(error, SyntaxError::TooDeep { .. })) {
        return Err(vec![error]);
    }
    let mut builder =
        Builder { text, base, names: std::mem::take(names), errors: Vec::new(), broken: Vec::new(), level: 0 };
    let all = SrcSpan::new(base as usize, base as usize + text.len());
    let expr = builder.pairs(Rule::expr_piece, all, "the value").and_then(|mut pairs| builder.expr(pairs.next()?));
    *names = builder.names;
    match expr {
        Some(expr) if builder.errors.is_empty() => Ok(expr),
        _ => Err(builder.errors),
    }
}

static PRATT: LazyLock<PrattParser<Rule>> = LazyLock::new(|| {
    PrattParser::new()
        .op(Op::infix(Rule::or, Assoc::Left))
        .op(Op::infix(Rule::and, Assoc::Left))
        .op(Op::prefix(Rule::not))
        .op(Op::infix(Rule::compare, Assoc::Left))
        .op(Op::infix(Rule::sum, Assoc::Left))
        .op(Op::infix(Rule::product, Assoc::Left))
        .op(Op::prefix(Rule::negate))
});

/// Builds the tree. A method returns nothing when it has pushed an error.
struct Builder<'a> {
    text: &'a str,
    base: u32,
    names: Interner,
    errors: Vec<SyntaxError>,
    /// Where the splitter found mistakes: a piece around one is not blamed again.
    broken: Vec<usize>,
    /// Calls of `sized` under way; several belong to one level of brackets.
    level: usize,
}

impl<'a> Builder<'a> {
    fn slice(&self, span: SrcSpan) -> &'a str {
        let start = (span.start - self.base) as usize;
        &self.text[start..start + span.len as usize]
    }

    /// The text of a `///` or `//!` line without its mark and one leading space.
    fn doc(&self, span: SrcSpan) -> String {
        let text = &self.slice(span)[3..];
        text.strip_prefix(' ').unwrap_or(text).trim_end().to_owned()
    }

    /// Parses one piece and returns what stands inside it; `what` names it in messages.
    fn pairs(&mut self, rule: Rule, span: SrcSpan, what: &str) -> Option<Piecewise<'a>> {
        let text = self.slice(span);
        match Grammar::parse(rule, text) {
            Ok(mut pairs) => {
                let piece = pairs.next().expect("a rule that matched gives one pair");
                Some(Piecewise { pairs: piece.into_inner(), base: span.start })
            }
            Err(error) if matches!(error.variant, ErrorVariant::CustomError { .. }) => {
                // Pest guards its own stack; nothing else makes it give up with a text of its own.
                self.too_long(span);
                None
            }
            Err(_) => {
                let inside = span.start as usize..span.end() as usize;
                if !self.broken.iter().any(|offset| inside.contains(offset)) {
                    self.errors.push(failure(rule, text, span, what));
                }
                None
            }
        }
    }

    // --- Declarations ---------------------------------------------------------------------------------------

    fn decl(&mut self, piece: Piece) -> Option<Decl> {
        let docs = piece.docs.iter().map(|&span| self.doc(span)).collect();
        let head = piece.head;
        let kind = match piece.body {
            Body::None => self.simple_decl(head),
            Body::Block(body) => {
                // The block is parsed even where its head is wrong, for the errors in it.
                let head_kind = self.decl_head(head);
                let body = self.block(body);
                head_kind.map(|head| match head {
                    Head::Def(name, signature) => DeclKind::Def { name, signature, body },
                    Head::Setup => DeclKind::Setup(body),
                    Head::Step(options) => DeclKind::Step { options, body },
                    Head::Teardown => DeclKind::Teardown(body),
                })
            }
            Body::Branches { .. } => unreachable!("the splitter makes branches of statements only"),
        };
        Some(Decl { docs, span: head, kind: kind? })
    }

    fn decl_head(&mut self, head: SrcSpan) -> Option<Head> {
        if self.slice(head).starts_with("def") {
            let mut at = self.pairs(Rule::def_piece, head, "the head of the `def`")?;
            let name = self.name(&mut at)?;
            let signature = at.take(Rule::signature)?;
            return Some(Head::Def(name, self.signature(signature)?));
        }
        let mut at = self.pairs(Rule::step_piece, head, "the head")?;
        let section = at.next()?;
        let options = match at.take(Rule::options) {
            Some(options) => self.settings(options)?,
            None => Vec::new(),
        };
        match section.pair.as_str() {
            "setup" => Some(Head::Setup),
            "teardown" => Some(Head::Teardown),
            _ => Some(Head::Step(options)),
        }
    }

    fn simple_decl(&mut self, span: SrcSpan) -> Option<DeclKind> {
        let mut piece = self.pairs(Rule::decl_piece, span, "the declaration")?;
        let decl = piece.next()?;
        let rule = decl.pair.as_rule();
        let mut at = decl.inner();
        Some(match rule {
            Rule::meta => {
                at.keyword();
                let fields = at.take(Rule::fields)?;
                DeclKind::Meta(self.settings(fields)?)
            }
            Rule::param => {
                at.keyword();
                let name = self.name(&mut at)?;
                let default = self.next_expr(&mut at)?;
                let allowed = if at.take(Rule::kw_in).is_some() { Some(self.next_expr(&mut at)?) } else { None };
                DeclKind::Param { name, default, allowed }
            }
            Rule::let_ => DeclKind::Let(self.let_(at)?),
            Rule::preset => {
                at.keyword();
                let name = self.name(&mut at)?;
                let values = self.bindings(&mut at)?;
                DeclKind::Preset { name, values }
            }
            Rule::stream => {
                at.keyword();
                let Family { name, count } = self.name_and_index(&mut at)?;
                let options = match at.take(Rule::options) {
                    Some(options) => self.settings(options)?,
                    None => Vec::new(),
                };
                DeclKind::Stream { name, count, options }
            }
            Rule::buffer => DeclKind::Buffer(self.buffer(at)?),
            Rule::mesh => {
                at.keyword();
                DeclKind::Mesh(self.bindings(&mut at)?)
            }
            Rule::kernel => {
                at.keyword();
                let name = self.name(&mut at)?;
                let signature = at.take(Rule::signature)?;
                let signature = self.signature(signature)?;
                let fields = at.take(Rule::fields)?;
                DeclKind::Kernel { name, signature, fields: self.settings(fields)? }
            }
            Rule::use_ => {
                at.keyword();
                let what = at.next()?;
                let what = if what.pair.as_rule() == Rule::path {
                    self.path(what)?
                } else {
                    Expr { span: what.span(), kind: ExprKind::Text(unquote(what.pair.as_str())) }
                };
                DeclKind::Use { what }
            }
            Rule::draw => {
                at.keyword();
                let Family { name, count } = self.name_and_index(&mut at)?;
                DeclKind::Draw { name, dims: count, distribution: self.next_expr(&mut at)? }
            }
            Rule::metric => {
                at.keyword();
                let name = self.name(&mut at)?;
                let value = self.next_expr(&mut at)?;
                let unit = at.take(Rule::string).map(|text| unquote(text.pair.as_str()));
                DeclKind::Metric { name, value, unit }
            }
            Rule::expect => {
                at.keyword();
                let condition = self.next_expr(&mut at)?;
                DeclKind::Expect { condition, when: self.when(&mut at)? }
            }
            rule => unreachable!("`decl_piece` holds no {rule:?}"),
        })
    }

    fn let_(&mut self, mut at: Piecewise<'a>) -> Option<Binding> {
        at.keyword();
        Some(Binding { name: self.name(&mut at)?, value: self.next_expr(&mut at)? })
    }

    fn bindings(&mut self, at: &mut Piecewise<'a>) -> Option<Vec<Binding>> {
        let mut bindings = Vec::new();
        while let Some(binding) = at.take(Rule::binding) {
            let mut at = binding.inner();
            bindings.push(Binding { name: self.name(&mut at)?, value: self.next_expr(&mut at)? });
        }
        Some(bindings)
    }

    fn buffer(&mut self, mut at: Piecewise<'a>) -> Option<Buffer> {
        at.keyword();
        let mut families = Vec::new();
        while let Some(family) = at.take(Rule::family) {
            families.push(self.name_and_index(&mut family.inner())?);
        }
        let layout = at.next()?;
        let layout = match layout.pair.as_rule() {
            Rule::parts => {
                let mut parts = Vec::new();
                let mut at = layout.inner();
                while let Some(part) = at.take(Rule::part) {
                    let mut at = part.inner();
                    while at.take(Rule::doc).is_some() {}
                    parts.push((self.name(&mut at)?, self.next_expr(&mut at)?));
                }
                Layout::Parts(parts)
            }
            Rule::like => Layout::Like(self.path(layout.inner().next()?)?),
            _ => Layout::Tensor(self.expr(layout)?),
        };
        let space = match at.take(Rule::space) {
            Some(space) => {
                let mut at = space.inner();
                at.keyword();
                Some(self.name(&mut at)?)
            }
            None => None,
        };
        let init = match at.take(Rule::initial) {
            Some(init) => Some(self.next_expr(&mut init.inner())?),
            None => None,
        };
        Some(Buffer { families, layout, space, init })
    }

    fn signature(&mut self, signature: Item<'a>) -> Option<Signature> {
        let mut at = signature.inner();
        let mut lists = [Vec::new(), Vec::new()];
        for (rule, list) in [Rule::arguments, Rule::results].into_iter().zip(&mut lists) {
            let Some(args) = at.take(rule) else { continue };
            let mut at = args.inner();
            while let Some(arg) = at.take(Rule::sig_arg) {
                let mut at = arg.inner();
                let name = self.name(&mut at)?;
                let ty = match at.next() {
                    Some(ty) => Some(self.expr(ty)?),
                    None => None,
                };
                list.push(Param { name, ty });
            }
        }
        let [inputs, outputs] = lists;
        Some(Signature { inputs, outputs })
    }

    fn settings(&mut self, list: Item<'a>) -> Option<Vec<Setting>> {
        let mut settings = Vec::new();
        let mut at = list.inner();
        while let Some(option) = at.take(Rule::option) {
            settings.push(self.setting(option)?);
        }
        Some(settings)
    }

    fn setting(&mut self, option: Item<'a>) -> Option<Setting> {
        let mut at = option.inner();
        while at.take(Rule::doc).is_some() {}
        Some(Setting { key: self.name(&mut at)?, value: self.next_expr(&mut at)? })
    }

    fn when(&mut self, at: &mut Piecewise<'a>) -> Option<Option<Expr>> {
        match at.take(Rule::when) {
            None => Some(None),
            Some(when) => {
                let mut at = when.inner();
                at.keyword();
                Some(Some(self.next_expr(&mut at)?))
            }
        }
    }

    // --- Statements -----------------------------------------------------------------------------------------

    fn block(&mut self, pieces: Vec<Piece>) -> Block {
        pieces.into_iter().filter_map(|piece| self.stmt(piece)).collect()
    }

    fn stmt(&mut self, piece: Piece) -> Option<Stmt> {
        let span = piece.head;
        let kind = match piece.body {
            Body::None => self.simple_stmt(span)?,
            Body::Block(body) => {
                let head = self.stmt_head(span);
                let body = self.block(body);
                match head? {
                    StmtHead::For(variable, over) => StmtKind::For { variable, over, body },
                    StmtHead::On(stream, after) => StmtKind::On { stream, after, body },
                    StmtHead::Phase(label) => StmtKind::Phase { label, body },
                    StmtHead::Group => StmtKind::Group { body },
                }
            }
            Body::Branches { first, others, otherwise } => {
                let mut arms = vec![(self.if_head(span), self.block(first))];
                for (head, body) in others {
                    arms.push((self.if_head(head), self.block(body)));
                }
                let otherwise = otherwise.map(|body| self.block(body));
                let arms = arms.into_iter().map(|(head, body)| Some((head?, body))).collect::<Option<_>>()?;
                StmtKind::If { arms, otherwise }
            }
        };
        Some(Stmt { span, kind })
    }

    fn if_head(&mut self, span: SrcSpan) -> Option<Expr> {
        let mut at = self.pairs(Rule::if_piece, span, "the condition")?;
        at.keyword();
        self.next_expr(&mut at)
    }

    fn stmt_head(&mut self, span: SrcSpan) -> Option<StmtHead> {
        let first = self.slice(span).split(|c: char| !c.is_ascii_alphanumeric()).next();
        match first.unwrap_or("") {
            "for" => {
                let mut at = self.pairs(Rule::for_piece, span, "the head of the loop")?;
                at.keyword();
                let variable = self.name(&mut at)?;
                at.keyword();
                Some(StmtHead::For(variable, self.next_expr(&mut at)?))
            }
            "on" => {
                let mut at = self.pairs(Rule::on_piece, span, "the head of the block")?;
                at.keyword();
                let stream = at.take(Rule::path)?;
                let stream = self.path(stream)?;
                let mut edges = Vec::new();
                if let Some(after) = at.take(Rule::after) {
                    let mut at = after.inner();
                    at.keyword();
                    while let Some(edge) = at.take(Rule::edge) {
                        edges.push(self.edge(edge)?);
                    }
                }
                Some(StmtHead::On(stream, edges))
            }
            "phase" => {
                let mut at = self.pairs(Rule::phase_piece, span, "the head of the phase")?;
                at.keyword();
                let label = at.take(Rule::label_name)?;
                Some(StmtHead::Phase(self.label_name(label)?))
            }
            _ => {
                self.pairs(Rule::group_piece, span, "the head of the group")?;
                Some(StmtHead::Group)
            }
        }
    }

    fn edge(&mut self, edge: Item<'a>) -> Option<Edge> {
        let mut at = edge.inner();
        let label = at.next()?;
        let previous = label.pair.as_rule() == Rule::prev;
        let path = if previous { label.inner().next()? } else { label };
        Some(Edge { label: self.path(path)?, previous, when: self.when(&mut at)? })
    }

    fn label_name(&mut self, label: Item<'a>) -> Option<LabelName> {
        let Family { name, count } = self.name_and_index(&mut label.inner())?;
        Some(LabelName { name, index: count })
    }

    fn simple_stmt(&mut self, span: SrcSpan) -> Option<StmtKind> {
        let mut piece = self.pairs(Rule::stmt_piece, span, "the statement")?;
        let stmt = piece.next()?;
        match stmt.pair.as_rule() {
            Rule::let_ => Some(StmtKind::Let(self.let_(stmt.inner())?)),
            Rule::local => {
                let mut at = stmt.inner();
                at.keyword();
                let family = at.take(Rule::family)?;
                let family = self.name_and_index(&mut family.inner())?;
                Some(StmtKind::Buffer { family, ty: self.next_expr(&mut at)? })
            }
            _ => Some(StmtKind::Call(self.operation(stmt)?)),
        }
    }

    fn operation(&mut self, operation: Item<'a>) -> Option<Call> {
        let end = operation.span();
        let mut at = operation.inner();
        let label = match at.take(Rule::label) {
            Some(label) => Some(self.label_name(label.inner().next()?)?),
            None => None,
        };
        let callee_item = at.take(Rule::callee)?;
        let start = callee_item.span();
        let mut callee = Vec::new();
        let mut inner = callee_item.inner();
        while inner.peek().is_some() {
            callee.push(self.name(&mut inner)?);
        }
        let args = at.take(Rule::args)?;
        let span = start.to(args.span());
        let mut call =
            Call { label, callee, inputs: Vec::new(), outputs: Vec::new(), options: Vec::new(), over: None, span };
        let mut lists = args.inner();
        for rule in [Rule::inputs, Rule::outputs] {
            let Some(list) = lists.take(rule) else { continue };
            let mut list = list.inner();
            while let Some(arg) = list.take(Rule::arg) {
                let mut at = arg.inner();
                let first = at.next()?;
                if first.pair.as_rule() == Rule::option {
                    call.options.push(self.setting(first)?);
                    continue;
                }
                let value = self.expr(first)?;
                let at = match at.take(Rule::at) {
                    Some(at) => {
                        let mut at = at.inner();
                        at.keyword();
                        Some(self.next_expr(&mut at)?)
                    }
                    None => None,
                };
                let side = if rule == Rule::inputs { &mut call.inputs } else { &mut call.outputs };
                side.push(Arg { value, at });
            }
        }
        if let Some(over) = at.take(Rule::over) {
            let mut at = over.inner();
            at.keyword();
            call.over = Some(self.path(at.next()?)?);
            call.span = start.to(end);
        }
        Some(call)
    }

    // --- Expressions ----------------------------------------------------------------------------------------

    fn name(&mut self, at: &mut Piecewise<'a>) -> Option<Name> {
        let item = at.next()?;
        Some(Name { symbol: self.names.intern(item.pair.as_str()), span: item.span() })
    }

    fn name_and_index(&mut self, at: &mut Piecewise<'a>) -> Option<Family> {
        let name = self.name(at)?;
        let count = match at.take(Rule::index) {
            Some(index) => self.exprs(index)?,
            None => Vec::new(),
        };
        Some(Family { name, count })
    }

    fn next_expr(&mut self, at: &mut Piecewise<'a>) -> Option<Expr> {
        let item = at.next()?;
        self.expr(item)
    }

    fn exprs(&mut self, list: Item<'a>) -> Option<Vec<Expr>> {
        let mut at = list.inner();
        let mut exprs = Vec::new();
        while let Some(item) = at.next() {
            exprs.push(self.expr(item)?);
        }
        Some(exprs)
    }

    fn expr(&mut self, item: Item<'a>) -> Option<Expr> {
        self.sized(item).map(|sized| sized.expr)
    }

    fn sized_list(&mut self, at: &mut Piecewise<'a>) -> Option<(Vec<Expr>, usize)> {
        let mut exprs = Vec::new();
        let mut depth = 0;
        while let Some(item) = at.next() {
            let sized = self.sized(item)?;
            depth = depth.max(sized.depth);
            exprs.push(sized.expr);
        }
        Some((exprs, depth))
    }

    /// An expression and the height of its tree, which is kept under a limit while it is built.
    fn sized(&mut self, item: Item<'a>) -> Option<Sized> {
        let span = item.span();
        if self.level > MAX_RECURSION {
            self.too_long(span);
            return None;
        }
        self.level += 1;
        let sized = self.sized_inner(item, span);
        self.level -= 1;
        sized
    }

    fn sized_inner(&mut self, item: Item<'a>, span: SrcSpan) -> Option<Sized> {
        match item.pair.as_rule() {
            Rule::expr => {
                let inner = item.inner().next()?;
                self.sized(inner)
            }
            Rule::whole => Some(Sized::leaf(span, ExprKind::Whole)),
            Rule::range => {
                let mut at = item.inner();
                let from = at.next()?;
                let from = self.sized(from)?;
                let Some(operator) = at.next() else { return Some(from) };
                let to = at.next()?;
                let to = self.sized(to)?;
                let depth = 1 + from.depth.max(to.depth);
                let kind = ExprKind::Range {
                    from: Box::new(from.expr),
                    to: Box::new(to.expr),
                    inclusive: operator.pair.as_str() == "..=",
                };
                self.limited(span, kind, depth)
            }
            Rule::term => self.term(item),
            Rule::postfix => self.postfix(item),
            Rule::primary => {
                let inner = item.inner().next()?;
                self.sized(inner)
            }
            Rule::cond => self.cond(item),
            Rule::quantity => self.quantity(item),
            Rule::string => Some(Sized::leaf(span, ExprKind::Text(unquote(item.pair.as_str())))),
            Rule::boolean => Some(Sized::leaf(span, ExprKind::Bool(item.pair.as_str() == "true"))),
            Rule::list => {
                let (items, depth) = self.sized_list(&mut item.inner())?;
                self.limited(span, ExprKind::List(items), depth + 1)
            }
            _ => {
                let symbol = self.names.intern(item.pair.as_str());
                Some(Sized::leaf(span, ExprKind::Name(symbol)))
            }
        }
    }

    fn limited(&mut self, span: SrcSpan, kind: ExprKind, depth: usize) -> Option<Sized> {
        if depth > MAX_EXPRESSION_DEPTH {
            self.too_long(span);
            return None;
        }
        Some(Sized { expr: Expr { span, kind }, depth })
    }

    fn too_long(&mut self, span: SrcSpan) {
        self.errors.push(SyntaxError::ExpressionTooLong { limit: MAX_EXPRESSION_DEPTH, at: span.into() });
    }

    fn term(&mut self, item: Item<'a>) -> Option<Sized> {
        let span = item.span();
        let base = item.base;
        let pairs = item.pair.into_inner();
        if pairs.len() == 1 {
            let only = pairs.into_iter().next()?;
            return self.sized(Item { pair: only, base });
        }
        // Before pest's parser recurses over the prefixes, and before a tree is built that is too deep to drop.
        if pairs.len() > 2 * MAX_EXPRESSION_DEPTH {
            self.too_long(span);
            return None;
        }
        let builder = std::cell::RefCell::new(self);
        PRATT
            .map_primary(|pair| builder.borrow_mut().sized(Item { pair, base }))
            .map_prefix(|operator, operand| {
                let operand = operand?;
                let span = item_span(&operator, base).to(operand.expr.span);
                let inner = Box::new(operand.expr);
                let kind = match operator.as_rule() {
                    Rule::not => ExprKind::Not(inner),
                    _ => ExprKind::Negate(inner),
                };
                builder.borrow_mut().limited(span, kind, operand.depth + 1)
            })
            .map_infix(|left, operator, right| {
                let (left, right) = (left?, right?);
                let span = left.expr.span.to(right.expr.span);
                let depth = 1 + left.depth.max(right.depth);
                let kind = ExprKind::Binary {
                    op: binary_op(operator.as_str()),
                    left: Box::new(left.expr),
                    right: Box::new(right.expr),
                };
                builder.borrow_mut().limited(span, kind, depth)
            })
            .parse(pairs)
    }

    fn postfix(&mut self, item: Item<'a>) -> Option<Sized> {
        let mut at = item.inner();
        let first = at.next()?;
        let mut sized = self.sized(first)?;
        while let Some(suffix) = at.next() {
            sized = self.suffix(sized, suffix)?;
        }
        Some(sized)
    }

    fn suffix(&mut self, base: Sized, suffix: Item<'a>) -> Option<Sized> {
        let span = base.expr.span.to(suffix.span());
        match suffix.pair.as_rule() {
            Rule::call => {
                let ExprKind::Name(symbol) = base.expr.kind else {
                    self.errors.push(SyntaxError::CallOfValue { at: base.expr.span.into() });
                    return None;
                };
                let callee = Name { symbol, span: base.expr.span };
                let (args, depth) = self.sized_list(&mut suffix.inner())?;
                self.limited(span, ExprKind::Call { callee, args }, depth + 1)
            }
            Rule::index => {
                let (items, depth) = self.sized_list(&mut suffix.inner())?;
                let base_expr = Box::new(base.expr);
                let kind = ExprKind::Index { base: base_expr, items };
                self.limited(span, kind, 1 + depth.max(base.depth))
            }
            _ => {
                let name = self.name(&mut suffix.inner())?;
                let kind = ExprKind::Field { base: Box::new(base.expr), name };
                self.limited(span, kind, base.depth + 1)
            }
        }
    }

    /// The path of a stream, a label or a group: a name with fields and indices.
    fn path(&mut self, item: Item<'a>) -> Option<Expr> {
        let mut at = item.inner();
        let name = self.name(&mut at)?;
        let mut sized = Sized::leaf(name.span, ExprKind::Name(name.symbol));
        while let Some(suffix) = at.next() {
            sized = self.suffix(sized, suffix)?;
        }
        Some(sized.expr)
    }

    fn cond(&mut self, item: Item<'a>) -> Option<Sized> {
        let span = item.span();
        let mut at = item.inner();
        let mut values = Vec::new();
        let mut depth = 0;
        while let Some(inner) = at.next() {
            if matches!(inner.pair.as_rule(), Rule::kw_if | Rule::kw_else) {
                continue;
            }
            let sized = self.sized(inner)?;
            depth = depth.max(sized.depth);
            values.push(sized.expr);
        }
        let otherwise = Box::new(values.pop()?);
        let mut arms = Vec::new();
        let mut values = values.into_iter();
        while let (Some(condition), Some(value)) = (values.next(), values.next()) {
            arms.push((condition, value));
        }
        self.limited(span, ExprKind::If { arms, otherwise }, depth + 1)
    }

    fn quantity(&mut self, item: Item<'a>) -> Option<Sized> {
        let span = item.span();
        let mut at = item.inner();
        let digits = at.next()?;
        let text: String = digits.pair.as_str().chars().filter(|&c| c != '_').collect();
        let unit = match at.next() {
            None => None,
            Some(name) => {
                let text = name.pair.as_str();
                let Some(unit) = units::unit(text) else {
                    self.errors.push(SyntaxError::UnknownUnit {
                        unit: text.to_owned(),
                        at: name.span().into(),
                        help: suggest::did_you_mean(text, UNITS.iter().map(|unit| unit.name)),
                    });
                    return None;
                };
                Some(unit)
            }
        };
        let kind = match unit {
            None if text.bytes().all(|byte| byte.is_ascii_digit()) => match text.parse() {
                Ok(value) => ExprKind::Int(value),
                Err(_) => {
                    self.errors.push(SyntaxError::NumberTooLarge { at: span.into() });
                    return None;
                }
            },
            unit => match (text.parse::<f64>(), unit) {
                (Ok(value), None) if value.is_finite() => ExprKind::Float(value),
                (Ok(value), Some(unit)) if (value * unit.factor).is_finite() => ExprKind::Quantity { value, unit },
                _ => {
                    self.errors.push(SyntaxError::NumberTooLarge { at: span.into() });
                    return None;
                }
            },
        };
        Some(Sized::leaf(span, kind))
    }
}

enum Head {
    Def(Name, Signature),
    Setup,
    Step(Vec<Setting>),
    Teardown,
}

enum StmtHead {
    For(Name, Expr),
    On(Expr, Vec<Edge>),
    Phase(LabelName),
    Group,
}

/// An expression and the height of its tree.
struct Sized {
    expr: Expr,
    depth: usize,
}

impl Sized {
    fn leaf(span: SrcSpan, kind: ExprKind) -> Sized {
        Sized { expr: Expr { span, kind }, depth: 1 }
    }
}

/// A pair of pest's with the place of its piece.
struct Item<'a> {
    pair: Pair<'a, Rule>,
    base: u32,
}

impl<'a> Item<'a> {
    fn span(&self) -> SrcSpan {
        item_span(&self.pair, self.base)
    }

    fn inner(self) -> Piecewise<'a> {
        Piecewise { pairs: self.pair.into_inner(), base: self.base }
    }
}

fn item_span(pair: &Pair<'_, Rule>, base: u32) -> SrcSpan {
    // Trailing white space and comments belong to no construct.
    let text = pair.as_str().trim_end();
    let start = base as usize + pair.as_span().start();
    SrcSpan::new(start, start + text.len())
}

/// The pairs inside one, walked from the first to the last.
struct Piecewise<'a> {
    pairs: Pairs<'a, Rule>,
    base: u32,
}

impl<'a> Piecewise<'a> {
    fn next(&mut self) -> Option<Item<'a>> {
        let pair = self.pairs.next().filter(|pair| pair.as_rule() != Rule::EOI)?;
        Some(Item { pair, base: self.base })
    }

    fn peek(&self) -> Option<Rule> {
        self.pairs.peek().map(|pair| pair.as_rule())
    }

    /// The next pair, if it is of that rule.
    fn take(&mut self, rule: Rule) -> Option<Item<'a>> {
        if self.peek() == Some(rule) { self.next() } else { None }
    }

    /// Steps over a keyword.
    fn keyword(&mut self) {
        self.pairs.next();
    }
}

fn binary_op(text: &str) -> BinaryOp {
    match text {
        "or" => BinaryOp::Or,
        "and" => BinaryOp::And,
        "==" => BinaryOp::Equal,
        "!=" => BinaryOp::NotEqual,
        "<" => BinaryOp::Less,
        "<=" => BinaryOp::LessEqual,
        ">" => BinaryOp::Greater,
        ">=" => BinaryOp::GreaterEqual,
        "+" => BinaryOp::Add,
        "-" => BinaryOp::Subtract,
        "*" => BinaryOp::Multiply,
        "/" => BinaryOp::Divide,
        "%" => BinaryOp::Remainder,
        other => unreachable!("the grammar has no operator `{other}`"),
    }
}

/// What stands between the quotes, escapes resolved (`\n`, `\t`, `\"`, `\\`) in text of one line.
fn unquote(text: &str) -> String {
    if let Some(long) = text.strip_prefix("\"\"\"").and_then(|text| text.strip_suffix("\"\"\"")) {
        return long.to_owned();
    }
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    let mut out = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => match chars.next() {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some(other) => out.push(other),
                None => {}
            },
            (c, false) => out.push(c),
        }
    }
    out
}

/// Why a piece could not be parsed: the furthest place that was reached, and what could have stood there.
fn failure(rule: Rule, text: &str, span: SrcSpan, what: &str) -> SyntaxError {
    // The details cost time, so they are collected in a second run only.
    pest::set_error_detail(true);
    let attempts = Grammar::parse(rule, text).err().and_then(|error| error.parse_attempts());
    pest::set_error_detail(false);
    let (position, tokens) = attempts.map_or((text.len(), Vec::new()), |attempts| {
        let tokens = attempts.expected_tokens();
        (attempts.max_position, tokens.iter().map(ToString::to_string).collect())
    });
    // A reserved word in the place of a name fails behind its last letter.
    let before = text[..position].trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let position = if split::RESERVED.contains(&&text[before.len()..position]) && !tokens.iter().any(|t| t == "a..z") {
        before.len()
    } else {
        position
    };
    let rest = &text[position..];
    let skipped = rest.len() - rest.trim_start().len();
    let rest = rest.trim_start();
    let start = span.start as usize + position + skipped;
    let found_length = rest
        .char_indices()
        .find(|(_, c)| !(c.is_ascii_alphanumeric() || *c == '_'))
        .map_or(rest.len(), |(at, c)| if at == 0 { c.len_utf8() } else { at });
    let found = match &rest[..found_length] {
        "" => format!("the end of {what}"),
        word => format!("`{word}`"),
    };
    let word = &rest[..found_length];
    let help = split::RESERVED.contains(&word).then(|| format!("`{word}` is a reserved word and cannot be a name"));
    let at = if rest.is_empty() {
        SrcSpan::new(span.end() as usize - usize::from(span.len > 0), span.end() as usize)
    } else {
        SrcSpan::new(start, start + found_length)
    };
    SyntaxError::Expected { expected: expectation(&tokens), found, at: at.into(), help }
}

/// Pest's tokens, told in words: what an expression may begin with, and what may follow one, go by a collective name.
fn expectation(tokens: &[String]) -> String {
    const OPERAND: [&str; 12] = ["-", "not", "if", "(", "[", "\"", "\"\"\"", "true", "false", "0..9", "_", ".."];
    const OPERATOR: [&str; 18] =
        ["==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "and", "or", "[", "(", ".", "..", "..="];
    const NAME: [&str; 4] = ["_", "a..z", "A..Z", "0..9"];
    let has = |token: &str| tokens.iter().any(|candidate| candidate == token);
    let mut groups = Vec::new();
    let mut known: Vec<&str> = Vec::new();
    if has("a..z") && has("\"") {
        groups.push("an expression");
        known.extend(OPERAND);
        known.extend(NAME);
    } else if has("a..z") && !has("*") {
        groups.push("a name");
        known.extend(NAME);
    }
    if has("*") {
        groups.push("an operator");
        known.extend(OPERATOR);
        known.extend(NAME);
    }
    if !has("a..z") && has("_") && !has("*") {
        groups.push("a name");
        known.extend(NAME);
    }
    let mut literal: Vec<String> = tokens
        .iter()
        .map(String::as_str)
        .filter(|token| !token.trim().is_empty() && !token.starts_with("//") && !known.contains(token))
        .filter(|token| !matches!(*token, "e" | "E" | "\"\"\"" | "_" | "0..9" | "A..Z" | "a..z"))
        .map(|token| match token {
            "EOI" => "the end".to_owned(),
            "\"" => "a text in quotes".to_owned(),
            token => format!("`{token}`"),
        })
        .collect();
    literal.dedup();
    literal.truncate(6);
    literal.extend(groups.into_iter().map(str::to_owned));
    match literal.split_last() {
        None => "something else".to_owned(),
        Some((last, [])) => last.clone(),
        Some((last, most)) => format!("{} or {last}", most.join(", ")),
    }
}
