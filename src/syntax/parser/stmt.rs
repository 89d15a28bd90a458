//! Statements of a block.

use super::*;

enum StmtHead {
    For(Name, Expr),
    On(Expr, Vec<Edge>),
    Phase(LabelName),
    Group,
}

impl<'a> Builder<'a> {
    pub(super) fn block(&mut self, block: &PieceBlock) -> Block {
        block.pieces.iter().filter_map(|piece| self.stmt(piece)).collect()
    }

    fn stmt(&mut self, piece: &Piece) -> Option<Stmt> {
        let stmt = self.whole_stmt(piece);
        if stmt.is_none() {
            match piece.body {
                Body::None | Body::Stray => self.lost.push(piece.head),
                Body::Block(_) | Body::Branches { .. } => self.lost_block = true,
            }
        }
        stmt
    }

    fn whole_stmt(&mut self, piece: &Piece) -> Option<Stmt> {
        let span = piece.head;
        let kind = match &piece.body {
            Body::Stray => return None,
            Body::None => {
                let kind = self.simple_stmt(span);
                self.read(kind, span)?
            }
            Body::Block(body) => {
                let head = self.stmt_head(span);
                let head = self.read(head, span);
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
                    arms.push((self.if_head(*head), self.block(body)));
                }
                let otherwise = otherwise.as_ref().map(|body| self.block(body));
                let arms = arms.into_iter().map(|(head, body)| Some((head?, body))).collect::<Option<_>>()?;
                StmtKind::If { arms, otherwise }
            }
        };
        Some(Stmt { span, kind })
    }

    fn if_head(&mut self, span: SrcSpan) -> Option<Expr> {
        let condition = self.pairs(Rule::if_piece, span, "the condition").and_then(|mut at| {
            at.keyword();
            self.next_expr(&mut at)
        });
        self.read(condition, span)
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

    pub(super) fn label_name(&mut self, label: Item<'a>) -> Option<LabelName> {
        let Family { name, count } = self.name_and_index(&mut label.inner())?;
        Some(LabelName { name, index: count })
    }

    fn simple_stmt(&mut self, span: SrcSpan) -> Option<StmtKind> {
        let mut piece = self.pairs(Rule::stmt_piece, span, "the statement")?;
        let stmt = piece.next()?;
        match stmt.pair.as_rule() {
            Rule::let_ => Some(StmtKind::Let(self.let_(stmt.inner())?)),
            Rule::buffer => Some(StmtKind::Buffer(self.buffer(stmt.inner())?)),
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
                        Some(At { rank: self.next_expr(&mut at)?, when: self.when(&mut at)? })
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
}
