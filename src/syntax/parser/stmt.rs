//! Parses statements.

use super::*;

impl<'a> Builder<'a> {
    /// Parses the statements of a block. A statement with an error is reported and left out.
    pub(super) fn block(&mut self, block: &BlockPieces) -> Block {
        Block { span: block.span, stmts: block.pieces.iter().filter_map(|piece| self.stmt(piece)).collect() }
    }

    fn stmt(&mut self, piece: &Piece) -> Option<Stmt> {
        let span = piece.head;
        let stmt = |kind| Stmt { span, kind };
        let stmt = match &piece.body {
            Body::Stray => {
                self.obstacle = self.next_on_line(span).filter(|_| !self.slice(span).contains('\n'));
                None
            }
            Body::None => {
                let kind = self.old.stmt(span, false).or_else(|| self.simple_stmt(span, piece.lead));
                self.read(kind, span).map(stmt)
            }
            Body::Block(body) => {
                let head = self.old.stmt(span, true).or_else(|| self.stmt_head(span, piece.lead));
                let head = self.read(head, span);
                let body = self.block(body);
                head.map(stmt).map(|stmt| stmt.with_body(body))
            }
            Body::Branches { first, others, otherwise } => {
                let mut arms = vec![self.arm(span, first, piece.lead)];
                arms.extend(others.iter().map(|(head, body)| self.arm(*head, body, piece.lead)));
                let otherwise = otherwise.as_ref().map(|body| self.block(body));
                let arms = arms.into_iter().collect::<Option<_>>();
                arms.map(|arms| stmt(StmtKind::If { arms, otherwise }))
            }
        };
        if stmt.is_none() {
            match piece.body {
                Body::None | Body::Stray => self.unparsed.push(span),
                Body::Block(_) | Body::Branches { .. } => self.lost_block = true,
            }
        }
        stmt
    }

    fn arm(&mut self, span: SrcSpan, body: &BlockPieces, lead: &Lead) -> Option<Arm> {
        let condition = self.old.condition(span).or_else(|| {
            let mut at = self.pairs(lead.rule, span, lead.what)?;
            at.keyword();
            self.next_expr(&mut at)
        });
        let condition = self.read(condition, span);
        let body = self.block(body);
        Some(Arm { span, condition: condition?, body })
    }

    /// Parses the head of a statement with a block, and returns it with an empty block.
    fn stmt_head(&mut self, span: SrcSpan, lead: &Lead) -> Option<StmtKind> {
        let mut at = self.pairs(lead.rule, span, lead.what)?;
        at.keyword();
        let body = Block::default();
        Some(match lead.rule {
            Rule::for_piece => {
                let variable = self.name(&mut at)?;
                at.keyword();
                StmtKind::For { variable, over: self.next_expr(&mut at)?, body }
            }
            Rule::on_piece => {
                let stream = match at.take(Rule::cond) {
                    Some(chosen) => self.expr(chosen)?,
                    None => {
                        let path = at.take(Rule::path)?;
                        self.path(path)?
                    }
                };
                let mut after = Vec::new();
                if let Some(edges) = at.take(Rule::after) {
                    let mut at = edges.inner();
                    at.keyword();
                    while let Some(edge) = at.take(Rule::edge) {
                        after.push(self.edge(edge)?);
                    }
                }
                StmtKind::On { stream, after, body }
            }
            Rule::phase_piece => {
                let label = at.take(Rule::label_name)?;
                StmtKind::Phase { label: self.label_name(label)?, body }
            }
            Rule::group_piece => StmtKind::Group { body },
            rule => unreachable!("no statement has the head {rule:?}"),
        })
    }

    fn edge(&mut self, edge: PlacedPair<'a>) -> Option<Edge> {
        let mut at = edge.inner();
        let label = at.next()?;
        let previous = label.pair.as_rule() == Rule::prev;
        let path = if previous { label.inner().next()? } else { label };
        Some(Edge { label: self.path(path)?, previous, when: self.when(&mut at)? })
    }

    /// Parses a label or the name of a phase, with its index.
    pub(super) fn label_name(&mut self, label: PlacedPair<'a>) -> Option<LabelName> {
        let Family { name, count } = self.name_and_index(&mut label.inner())?;
        Some(LabelName { name, index: count })
    }

    fn simple_stmt(&mut self, span: SrcSpan, lead: &Lead) -> Option<StmtKind> {
        let mut piece = self.pairs(lead.rule, span, lead.what)?;
        let stmt = piece.next()?;
        match stmt.pair.as_rule() {
            Rule::let_ => Some(StmtKind::Let(self.let_(stmt.inner())?)),
            Rule::buffer => Some(StmtKind::Buffer(self.buffer(stmt.inner())?)),
            _ => Some(StmtKind::Call(self.operation(stmt)?)),
        }
    }

    /// Parses an operation, or the reference of a kernel, which has no label and follows its documentation. `None` after an error.
    pub(super) fn operation(&mut self, operation: PlacedPair<'a>) -> Option<Call> {
        let end = operation.span();
        let mut at = operation.inner();
        while at.take(Rule::doc).is_some() {}
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
                        Some(AtClause { rank: self.next_expr(&mut at)?, when: self.when(&mut at)? })
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
            let group = at.next()?;
            call.over = Some(if group.pair.as_rule() == Rule::path { self.path(group)? } else { self.expr(group)? });
            call.span = start.to(end);
        }
        Some(call)
    }
}
