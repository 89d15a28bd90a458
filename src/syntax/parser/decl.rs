//! Parses declarations.

use super::expr::unquote;
use super::*;

impl<'a> Builder<'a> {
    /// Parses a declaration; `None` after an error, which has been reported.
    pub(super) fn decl(&mut self, piece: &Piece) -> Option<Decl> {
        let docs = piece.docs.iter().map(|&span| self.doc(span)).collect();
        let span = piece.head;
        let decl = |kind| Decl { docs, span, kind };
        match &piece.body {
            Body::Stray => None,
            Body::None => {
                let kind = self.old.decl(span, false).or_else(|| self.simple_decl(span, piece.lead));
                self.read(kind, span).map(decl)
            }
            Body::Block(body) => {
                // The block is parsed even if its head is wrong, to find the errors in it.
                let head = self.old.decl(span, true).or_else(|| self.decl_head(span, piece.lead));
                let head = self.read(head, span);
                let body = self.block(body);
                head.map(decl).map(|decl| decl.with_body(body))
            }
            Body::Branches { .. } => unreachable!("the splitter makes branches of statements only"),
        }
    }

    /// Parses the head of a declaration with a block, and returns it with an empty block.
    fn decl_head(&mut self, head: SrcSpan, lead: &Lead) -> Option<DeclKind> {
        let mut at = self.pairs(lead.rule, head, lead.what)?;
        let body = Block::default();
        if lead.rule == Rule::def_piece {
            let name = self.name(&mut at)?;
            let signature = at.take(Rule::signature)?;
            return Some(DeclKind::Def { name, signature: self.signature(signature)?, body });
        }
        at.keyword();
        let options = match at.take(Rule::options) {
            Some(options) => self.settings(options)?,
            None => Vec::new(),
        };
        Some(match lead.word {
            "setup" => DeclKind::Setup(body),
            "teardown" => DeclKind::Teardown(body),
            _ => DeclKind::Step { options, body },
        })
    }

    fn simple_decl(&mut self, span: SrcSpan, lead: &Lead) -> Option<DeclKind> {
        let mut piece = self.pairs(lead.rule, span, lead.what)?;
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
                let (mut fields, mut references) = (Vec::new(), Vec::new());
                let mut at = at.take(Rule::kernel_fields)?.inner();
                while let Some(field) = at.next() {
                    match field.pair.as_rule() {
                        Rule::reference => references.push(self.operation(field)?),
                        _ => fields.push(self.setting(field)?),
                    }
                }
                DeclKind::Kernel { name, signature, fields, references, file: None }
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
                let mut at = at.take(Rule::distribution)?.inner();
                let distribution = self.name(&mut at)?;
                let (mut args, mut options) = (Vec::new(), Vec::new());
                while let Some(given) = at.take(Rule::given) {
                    let given = given.inner().next()?;
                    match given.pair.as_rule() {
                        Rule::option => options.push(self.setting(given)?),
                        _ => args.push(self.expr(given)?),
                    }
                }
                DeclKind::Draw { name, dims: count, distribution, args, options }
            }
            Rule::require => {
                at.keyword();
                let condition = self.next_expr(&mut at)?;
                let message = at.take(Rule::string).map(|text| unquote(text.pair.as_str()));
                DeclKind::Require { condition, message }
            }
            Rule::metric => {
                at.keyword();
                let name = self.name(&mut at)?;
                let each = match at.take(Rule::each) {
                    Some(each) => {
                        let mut at = each.inner();
                        let name = self.name(&mut at)?;
                        at.keyword();
                        Some(Binding { name, value: self.next_expr(&mut at)? })
                    }
                    None => None,
                };
                let value = self.next_expr(&mut at)?;
                let unit = at.take(Rule::string).map(|text| unquote(text.pair.as_str()));
                DeclKind::Metric { name, each, value, unit }
            }
            Rule::expect => {
                at.keyword();
                let condition = self.next_expr(&mut at)?;
                DeclKind::Expect { condition, when: self.when(&mut at)? }
            }
            rule => unreachable!("`decl_piece` holds no {rule:?}"),
        })
    }

    /// Parses `name = value`.
    pub(super) fn let_(&mut self, mut at: InnerPairs<'a>) -> Option<Binding> {
        at.keyword();
        Some(Binding { name: self.name(&mut at)?, value: self.next_expr(&mut at)? })
    }

    /// Parses several `name = value`.
    pub(super) fn bindings(&mut self, at: &mut InnerPairs<'a>) -> Option<Vec<Binding>> {
        let mut bindings = Vec::new();
        while let Some(binding) = at.take(Rule::binding) {
            let mut at = binding.inner();
            bindings.push(Binding { name: self.name(&mut at)?, value: self.next_expr(&mut at)? });
        }
        Some(bindings)
    }

    /// Parses the parts of a buffer's declaration.
    pub(super) fn buffer(&mut self, mut at: InnerPairs<'a>) -> Option<Buffer> {
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

    /// Parses a signature, such as `(x, w -> y)`.
    pub(super) fn signature(&mut self, signature: PlacedPair<'a>) -> Option<Signature> {
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

    /// Parses options or fields, such as `(priority: high)`.
    pub(super) fn settings(&mut self, list: PlacedPair<'a>) -> Option<Vec<Setting>> {
        let mut settings = Vec::new();
        let mut at = list.inner();
        while let Some(option) = at.take(Rule::option) {
            settings.push(self.setting(option)?);
        }
        Some(settings)
    }

    /// Parses an option or a field.
    pub(super) fn setting(&mut self, option: PlacedPair<'a>) -> Option<Setting> {
        let mut at = option.inner();
        while at.take(Rule::doc).is_some() {}
        Some(Setting { key: self.name(&mut at)?, value: self.next_expr(&mut at)? })
    }

    /// Parses the condition after `when`; `Some(None)` without one.
    pub(super) fn when(&mut self, at: &mut InnerPairs<'a>) -> Option<Option<Expr>> {
        match at.take(Rule::when) {
            None => Some(None),
            Some(when) => {
                let mut at = when.inner();
                at.keyword();
                Some(Some(self.next_expr(&mut at)?))
            }
        }
    }
}
