//! Groups of ranks: meshes that factor the world, and the group of a collective.

use rustc_hash::FxHashMap;

use crate::base::units::Dimension;
use crate::base::{GroupId, SrcSpan, Symbol, counted, suggest};
use crate::ops::{Category, Operation, Team};
use crate::syntax::ast::{Binding, Call, Expr, ExprKind, Name};
use crate::syntax::{walk, written};

use super::group::{Factor, Group};
use crate::model::analyzer::Analyzer;
use crate::model::error::{ModelError, StructureError};
use crate::model::values::value::Value;

/// The group of all ranks. A name bound to this group evaluates to the number of ranks, except where a group is
/// expected.
pub(in crate::model) const WORLD: GroupId = GroupId(0);

/// Members of a group after a dot.
pub(in crate::model) const MEMBERS: [&str; 2] = ["rank", "size"];

impl Analyzer<'_> {
    /// Analyzes `mesh dp = 2, tp = 4`: the last factor varies fastest with the rank.
    pub(in crate::model) fn mesh(&mut self, factors: &[Binding], at: SrcSpan) {
        // A failed requirement leaves groups unknown, so that later conditions about them are not reported.
        if self.mistakes.has_requirement() {
            return factors.iter().for_each(|factor| self.scopes.declare(factor.name.symbol, Value::Unknown));
        }
        let sizes: Vec<Option<u32>> = factors.iter().map(|factor| self.factor(factor)).collect();
        let known: Option<Vec<u32>> = sizes.into_iter().collect();
        let fits = known.filter(|sizes| self.factors_fit(sizes, at));
        let Some(sizes) = fits else {
            factors.iter().for_each(|factor| self.scopes.declare(factor.name.symbol, Value::Unknown));
            return;
        };
        let mut stride = self.options.world;
        let mut groups = FxHashMap::default();
        for (factor, size) in factors.iter().zip(sizes) {
            stride /= size;
            let name = self.names.name(factor.name.symbol).to_owned();
            let id = self.add_group(name, &[Factor { size, stride }], factor.name.span);
            groups.insert(factor.name.symbol, id);
            self.declare(factor.name, Value::Group(id));
        }
        self.products(&groups, at);
    }

    fn add_group(&mut self, name: String, factors: &[Factor], span: SrcSpan) -> GroupId {
        self.program.groups.push(Group::new(name, factors, self.options.rank, span));
        GroupId::from(self.program.groups.len() - 1)
    }

    /// Adds a group for each list of this mesh's factors in the file, such as `[dp, tp]`. All ranks read the same file,
    /// so the numbers of these groups are the same on all of them, independent of the branches that they take.
    fn products(&mut self, groups: &FxHashMap<Symbol, GroupId>, at: SrcSpan) {
        let ast = self.ast;
        walk::exprs(ast, &mut |expr| {
            let ExprKind::List(items) = &expr.kind else { return };
            let factor = |item: &Expr| groups.get(&item.as_name()?).copied();
            let Some(list) = items.iter().map(factor).collect::<Option<Vec<GroupId>>>() else { return };
            let is_new = list.len() > 1 && repeated(&list).is_none() && !self.products.contains_key(&list);
            if is_new {
                let parts = list.iter().map(|group| &self.program.groups[group.index()]);
                let names: Vec<&str> = parts.clone().map(|group| group.name.as_str()).collect();
                let name = format!("[{}]", names.join(", "));
                let factors: Vec<Factor> = parts.flat_map(|group| group.factors.iter().copied()).collect();
                let product = self.add_group(name, &factors, at);
                self.products.insert(list, product);
            }
        });
    }

    /// The size of one factor.
    fn factor(&mut self, factor: &Binding) -> Option<u32> {
        let value = self.eval(&factor.value);
        let (Value::Number(number), at) = (&value, factor.value.span) else {
            return self.wrong_type("a whole number", &value, factor.value.span);
        };
        if number.dimension != Dimension::NONE {
            return self.wrong_type("a whole number", &value, at);
        }
        let size = number.whole().and_then(|size| u32::try_from(size).ok()).filter(|size| *size > 0);
        if size.is_none() {
            let why = format!("`{}` would be {}", self.names.name(factor.name.symbol), number.text());
            self.mesh_error(why, "give a number of ranks that they divide, `--ranks N`".to_owned(), at);
        }
        size
    }

    fn factors_fit(&mut self, sizes: &[u32], at: SrcSpan) -> bool {
        let product = sizes.iter().fold(1u64, |product, size| product.saturating_mul(u64::from(*size)));
        if product == u64::from(self.options.world) {
            return true;
        }
        let text: Vec<String> = sizes.iter().map(u32::to_string).collect();
        let text = text.join(" × ");
        let why = if sizes.len() > 1 { format!("{text} = {product}") } else { text };
        self.mesh_error(why, format!("give `--ranks {product}`"), at);
        false
    }

    fn mesh_error(&mut self, why: String, give: String, at: SrcSpan) {
        let world = counted(self.options.world as usize, "rank");
        self.error(ModelError::Mesh { world, why, give, at: at.into() });
    }

    /// Evaluates `dp.rank` and `dp.size`.
    pub(in crate::model) fn group_member(&mut self, group: GroupId, member: Name) -> Value {
        let found = &self.program.groups[group.index()];
        match self.names.name(member.symbol) {
            "size" => Value::int(i64::from(found.size())),
            "rank" => {
                let number = found.number_of(self.options.rank);
                self.program.by_rank = true;
                Value::int(i64::from(number))
            }
            other => {
                let help = suggest::did_you_mean(other, MEMBERS);
                let (name, member_text) = (found.name.clone(), other.to_owned());
                self.fail_value(ModelError::UnknownMember { name, member: member_text, at: member.span.into(), help })
            }
        }
    }

    /// The group from this rank's point of view.
    pub(in crate::model) fn team(&self, group: GroupId) -> Team {
        let found = &self.program.groups[group.index()];
        Team { group, ranks: found.size(), rank: found.number_of(self.options.rank) }
    }

    /// Returns the group that an expression names: `world`, or a factor of a mesh; `None` for any other expression.
    pub(in crate::model) fn named_group(&self, expr: &Expr) -> Option<GroupId> {
        let name = expr.as_name()?;
        match self.scopes.get(name) {
            Some(Value::Group(group)) => Some(*group),
            Some(_) => None,
            None => (name == self.builtins.world).then_some(WORLD),
        }
    }

    /// Returns the value of a name that is bound to a group. For the group of all ranks this is the number of ranks, as
    /// for `world` itself.
    pub(in crate::model) fn group_value(&self, group: GroupId) -> Value {
        if group == WORLD { Value::int(i64::from(self.options.world)) } else { Value::Group(group) }
    }

    /// The group of an operation: all ranks, unless `over` names another. `None` if `over` is invalid.
    pub(in crate::model) fn group_over(&mut self, operation: &dyn Operation, call: &Call) -> Option<GroupId> {
        let Some(over) = &call.over else { return Some(WORLD) };
        if operation.category() != Category::Collective {
            self.no_group(call);
            return None;
        }
        if let Some(group) = self.named_group(over) {
            return Some(group);
        }
        match self.eval(over) {
            Value::Group(group) => Some(group),
            Value::List(items) => self.product(&items, over.span),
            Value::Unknown => None,
            other => {
                let (expected, found) = ("a group of ranks".to_owned(), other.describe(&self.names));
                let help = Some(self.group_help(over, &other));
                self.error(ModelError::WrongType { expected, found, at: over.span.into(), help });
                None
            }
        }
    }

    /// Help for an expression after `over` that is no group.
    fn group_help(&self, over: &Expr, found: &Value) -> String {
        if let ExprKind::Field { base, .. } = &over.kind
            && let (Some(_), Some(name)) = (self.named_group(base), base.as_name())
        {
            return format!("write the group itself: `over {}`", self.names.name(name));
        }
        let names: Vec<&str> = self.program.groups.iter().skip(1).map(|group| group.name.as_str()).collect();
        match names[..] {
            [] => match (over.as_name().map(|name| self.names.name(name)), found) {
                (Some(name), Value::Number(_)) => {
                    format!("declare `{name}` as a group, `mesh {name} = world`, not as a number")
                }
                _ => "declare one: `mesh dp = world / 4, tp = 4`, and write `over dp`".to_owned(),
            },
            [only] => format!("write `over {only}`"),
            [first, second, ..] => format!(
                "write one of {}, such as `over {first}`, or several in brackets: `over [{first}, {second}]`",
                suggest::listed(&names)
            ),
        }
    }

    /// The group of several factors of one mesh: the ranks that differ from this one in these factors.
    fn product(&mut self, items: &[Value], at: SrcSpan) -> Option<GroupId> {
        let mut list = Vec::with_capacity(items.len());
        for item in items {
            match item {
                Value::Group(group) => list.push(*group),
                other => return self.wrong_type("factors of a mesh", other, at),
            }
        }
        if let [only] = *list {
            return Some(only);
        }
        if let Some(&product) = self.products.get(&list) {
            return Some(product);
        }
        let name = |group: GroupId| self.program.groups[group.index()].name.clone();
        let (why, help) = match (repeated(&list), list.as_slice()) {
            (_, []) => ("the list has no group".to_owned(), "name the factors of a mesh: `over [dp, tp]`"),
            (Some(twice), _) => (format!("`{}` is there twice", name(twice)), "name each factor once"),
            _ => (
                "a list combines the factors of one mesh, by their names".to_owned(),
                "declare the factors in one mesh, `mesh dp = 2, tp = 4`, and name them, `over [dp, tp]`; a `def` takes \
                 the list as one argument, `f(x, [dp, tp])`",
            ),
        };
        self.fail(StructureError::GroupList { why, help, at: at.into() })
    }

    /// Reports `over` on an operation that is not a collective.
    pub(in crate::model) fn no_group(&mut self, call: &Call) {
        if let (Some(over), Some(callee)) = (&call.over, call.callee.first()) {
            let name = self.names.name(callee.symbol).to_owned();
            let help = match self.defs.contains_key(&callee.symbol) {
                true => "write it after each collective inside; a group may be an argument: `def f(x, g -> y) { … }`"
                    .to_owned(),
                false => format!("collectives do, such as `all_reduce(x -> x) over {}`", written(over, &self.names)),
            };
            self.error(ModelError::NoGroup { name, help, at: over.span.into() });
        }
    }
}

/// The first group that is in a list twice; `None` if all differ.
fn repeated(list: &[GroupId]) -> Option<GroupId> {
    list.iter().enumerate().find(|(place, group)| list[..*place].contains(group)).map(|(_, group)| *group)
}
