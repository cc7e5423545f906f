//! The texts that an expression may be.

use std::collections::BTreeMap;

use syn::{
    Block, Expr, ExprMacro, Lit, Local, Pat, Stmt, Token,
    punctuated::Punctuated,
    visit::{self, Visit},
};

use super::index::{Index, Source};

/// More alternatives than these within one text are left as a placeholder.
const MAX_ALTERNATIVES: usize = 6;

/// More calls and names than these are not followed.
const MAX_DEPTH: usize = 6;

/// The placeholder for a value without a name.
const UNNAMED: &str = "value";

/// Returns the name of a value in a text.
pub(super) fn name(value: &Expr) -> String {
    match value {
        Expr::Path(path) => {
            let last = path.path.segments.last();
            last.map_or_else(String::new, |last| last.ident.to_string().to_lowercase())
        }
        Expr::Field(field) => match &field.member {
            syn::Member::Named(name) => name.to_string(),
            syn::Member::Unnamed(_) => name(&field.base),
        },
        Expr::MethodCall(call) => {
            let receiver = name(&call.receiver);
            if receiver == "self" || receiver == UNNAMED {
                call.method.to_string()
            } else {
                receiver
            }
        }
        Expr::Call(call) => call.args.first().map_or_else(|| name(&call.func), name),
        Expr::Reference(inner) => name(&inner.expr),
        Expr::Paren(inner) => name(&inner.expr),
        Expr::Unary(inner) => name(&inner.expr),
        Expr::Cast(inner) => name(&inner.expr),
        Expr::Try(inner) => name(&inner.expr),
        Expr::Index(inner) => name(&inner.expr),
        Expr::Binary(inner) => name(&inner.left),
        _ => UNNAMED.to_owned(),
    }
}

/// Fills in a format: `of` returns the text of an argument by position and name.
pub(super) fn fill(format: &str, of: &dyn Fn(usize, Option<&str>) -> Vec<String>) -> Vec<String> {
    let mut made = vec![String::new()];
    let (mut rest, mut position) = (format, 0);
    while let Some(at) = rest.find(['{', '}']) {
        let (before, after) = rest.split_at(at);
        made.iter_mut().for_each(|text| text.push_str(before));
        if after.starts_with("{{") || after.starts_with("}}") {
            made.iter_mut().for_each(|text| text.push_str(&after[..1]));
            rest = &after[2..];
            continue;
        }
        let end = after.find('}').unwrap_or(after.len() - 1);
        let argument = after[1..end].split(':').next().unwrap_or_default();
        let values = match argument {
            "" => {
                position += 1;
                of(position - 1, None)
            }
            number if number.parse::<usize>().is_ok() => of(number.parse().unwrap_or(0), None),
            name => of(0, Some(name)),
        };
        let all = made
            .iter()
            .flat_map(|text| values.iter().map(move |value| format!("{text}{value}")));
        made = all.collect();
        rest = &after[end + 1..];
    }
    made.iter_mut().for_each(|text| text.push_str(rest));
    made
}

/// The values of the names in a function.
#[derive(Default)]
pub(super) struct Names<'a> {
    /// Values by variable; for a part of a tuple with its position in it.
    values: BTreeMap<String, Vec<(&'a Expr, Option<usize>)>>,
    /// Everything that the function returns early.
    returned: Vec<&'a Expr>,
}

impl<'a> Names<'a> {
    pub(super) fn of(block: &'a Block) -> Self {
        let mut names = Self::default();
        names.visit_block(block);
        names
    }

    fn add(&mut self, pattern: &Pat, value: &'a Expr, place: Option<usize>) {
        match pattern {
            Pat::Ident(ident) => {
                self.values
                    .entry(ident.ident.to_string())
                    .or_default()
                    .push((value, place));
            }
            Pat::Type(typed) => self.add(&typed.pat, value, place),
            Pat::Tuple(tuple) => {
                for (place, one) in tuple.elems.iter().enumerate() {
                    self.add(one, value, Some(place));
                }
            }
            Pat::TupleStruct(one) if one.elems.len() == 1 => self.add(&one.elems[0], value, place),
            _ => {}
        }
    }

    /// Returns the tuple that a variable belongs to, and its position in it.
    pub(super) fn in_tuple(&self, value: &Expr) -> Option<(&'a Expr, usize)> {
        let path = match value {
            Expr::Path(path) => path,
            Expr::MethodCall(call)
                if ["to_owned", "into", "clone"]
                    .iter()
                    .any(|one| call.method == one) =>
            {
                return self.in_tuple(&call.receiver);
            }
            _ => return None,
        };
        match self.values.get(&path.path.get_ident()?.to_string())?[..] {
            [(tuple, Some(place))] => Some((tuple, place)),
            _ => None,
        }
    }

    pub(super) fn value(&self, name: &str) -> Option<&'a Expr> {
        self.values.get(name)?.first().map(|(value, _)| *value)
    }
}

impl<'a> Visit<'a> for Names<'a> {
    fn visit_local(&mut self, local: &'a Local) {
        if let Some(init) = &local.init {
            self.add(&local.pat, &init.expr, None);
        }
        visit::visit_local(self, local);
    }

    fn visit_expr_let(&mut self, one: &'a syn::ExprLet) {
        self.add(&one.pat, &one.expr, None);
        visit::visit_expr_let(self, one);
    }

    fn visit_expr_assign(&mut self, assigned: &'a syn::ExprAssign) {
        if let Expr::Path(path) = &*assigned.left
            && let Some(name) = path.path.get_ident()
        {
            self.values
                .entry(name.to_string())
                .or_default()
                .push((&assigned.right, None));
        }
        visit::visit_expr_assign(self, assigned);
    }

    fn visit_expr_return(&mut self, returned: &'a syn::ExprReturn) {
        self.returned.extend(returned.expr.as_deref());
    }

    fn visit_expr_closure(&mut self, _: &'a syn::ExprClosure) {}

    fn visit_item(&mut self, _: &'a syn::Item) {}
}

/// The position of an expression.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a, 'b> {
    pub(super) index: &'b Index<'a>,
    pub(super) file: (&'a str, &'a str),
    pub(super) names: &'b Names<'a>,
    pub(super) depth: usize,
}

impl<'a> Scope<'a, '_> {
    pub(super) fn new<'b>(
        index: &'b Index<'a>,
        source: &'a Source,
        names: &'b Names<'a>,
    ) -> Scope<'a, 'b> {
        Scope {
            index,
            file: (&source.krate, &source.module),
            names,
            depth: 0,
        }
    }

    fn deeper(self) -> Option<Self> {
        let depth = self.depth + 1;
        (depth <= MAX_DEPTH).then_some(Self { depth, ..self })
    }

    /// Returns the texts that an expression may be; of a tuple, those at the place.
    pub(super) fn texts(self, value: &Expr, place: Option<usize>) -> Vec<String> {
        match value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) if place.is_none() => vec![text.value()],
                _ => Vec::new(),
            },
            Expr::Macro(one) if place.is_none() => self.of_macro(one),
            Expr::Reference(inner) => self.texts(&inner.expr, place),
            Expr::Paren(inner) => self.texts(&inner.expr, place),
            Expr::Group(inner) => self.texts(&inner.expr, place),
            Expr::Try(inner) => self.texts(&inner.expr, place),
            Expr::Return(inner) => inner
                .expr
                .as_deref()
                .map_or_else(Vec::new, |one| self.texts(one, place)),
            Expr::Closure(closure) => self.texts(&closure.body, place),
            Expr::Block(block) => self.of_block(&block.block, place),
            Expr::If(one) => {
                let mut found = self.of_block(&one.then_branch, place);
                if let Some((_, other)) = &one.else_branch {
                    found.extend(self.texts(other, place));
                }
                found
            }
            Expr::Match(one) => {
                let arms = one.arms.iter();
                arms.flat_map(|arm| self.texts(&arm.body, place)).collect()
            }
            Expr::Tuple(tuple) => match place {
                Some(place) => tuple
                    .elems
                    .get(place)
                    .map_or_else(Vec::new, |one| self.texts(one, None)),
                None => Vec::new(),
            },
            Expr::Path(path) => match path.path.segments.last() {
                Some(last) => self.of_name(
                    &last.ident.to_string(),
                    path.path.segments.len() == 1,
                    place,
                ),
                None => Vec::new(),
            },
            Expr::Call(call) => match &*call.func {
                Expr::Path(path) => {
                    let name = path.path.segments.last().map(|last| last.ident.to_string());
                    let name = name.unwrap_or_default();
                    match name.as_str() {
                        "Some" | "Ok" | "Err" | "from" | "Borrowed" | "Owned" => call
                            .args
                            .first()
                            .map_or_else(Vec::new, |one| self.texts(one, place)),
                        _ => self.of_function(&name, place),
                    }
                }
                _ => Vec::new(),
            },
            Expr::MethodCall(call) => match call.method.to_string().as_str() {
                "to_owned" | "into" | "to_string" | "clone" | "as_str" | "as_deref" | "cloned"
                | "as_ref" => self.texts(&call.receiver, place),
                "unwrap_or" | "unwrap_or_else" | "map_or" | "map_or_else" | "or" | "or_else"
                | "then" | "then_some" | "map" | "and_then" | "filter" | "ok_or" | "ok_or_else" => {
                    let mut found = self.texts(&call.receiver, place);
                    found.extend(call.args.iter().flat_map(|one| self.texts(one, place)));
                    found
                }
                other => self.of_function(other, place),
            },
            _ => Vec::new(),
        }
    }

    fn of_block(self, block: &Block, place: Option<usize>) -> Vec<String> {
        match block.stmts.last() {
            Some(Stmt::Expr(last, _)) => self.texts(last, place),
            Some(Stmt::Macro(last)) if place.is_none() => {
                let path = last.mac.path.get_ident().map(ToString::to_string);
                let of = ExprMacro {
                    attrs: Vec::new(),
                    mac: last.mac.clone(),
                };
                path.map_or_else(Vec::new, |_| self.of_macro(&of))
            }
            _ => Vec::new(),
        }
    }

    fn of_name(self, name: &str, bare: bool, place: Option<usize>) -> Vec<String> {
        let Some(deeper) = self.deeper() else {
            return Vec::new();
        };
        if bare && let Some(values) = self.names.values.get(name) {
            let all = values.iter();
            return all
                .flat_map(|(value, own)| deeper.texts(value, own.or(place)))
                .collect();
        }
        let all = self.index.constants.get(name).into_iter().flatten();
        let mut all: Vec<_> = all.filter(|(krate, ..)| *krate == self.file.0).collect();
        if let Some(own) = all.iter().position(|(_, module, _)| *module == self.file.1) {
            all = vec![all[own]];
        }
        match all[..] {
            [(_, _, value)] => deeper.texts(value, place),
            _ => Vec::new(),
        }
    }

    fn of_function(self, name: &str, place: Option<usize>) -> Vec<String> {
        let Some(deeper) = self.deeper() else {
            return Vec::new();
        };
        let all = self.index.texts.get(name).into_iter().flatten();
        let mut all: Vec<_> = all.filter(|one| one.file.0 == self.file.0).collect();
        if all.iter().any(|one| one.file == self.file) {
            all.retain(|one| one.file == self.file);
        }
        match all[..] {
            [one] => {
                let names = Names::of(one.block);
                let inner = Scope {
                    file: one.file,
                    names: &names,
                    ..deeper
                };
                let early = names
                    .returned
                    .iter()
                    .flat_map(|value| inner.texts(value, place));
                let mut found: Vec<String> = early.collect();
                found.extend(inner.of_block(one.block, place));
                found
            }
            _ => Vec::new(),
        }
    }

    fn of_macro(self, one: &ExprMacro) -> Vec<String> {
        let macro_name = one.mac.path.get_ident().map(ToString::to_string);
        let arguments = one
            .mac
            .parse_body_with(Punctuated::<Expr, Token![,]>::parse_terminated);
        let Ok(arguments) = arguments else {
            return Vec::new();
        };
        match macro_name.as_deref() {
            Some("format" | "format_args") => {
                let Some(Expr::Lit(literal)) = arguments.first() else {
                    return Vec::new();
                };
                let Lit::Str(text) = &literal.lit else {
                    return Vec::new();
                };
                let placed: Vec<&Expr> = arguments.iter().skip(1).collect();
                fill(&text.value(), &|position, given| match given {
                    None => placed
                        .get(position)
                        .map_or_else(|| vec![format!("{{{UNNAMED}}}")], |value| self.part(value)),
                    Some(given) => {
                        let named = placed.iter().find_map(|one| match one {
                            Expr::Assign(one) if name(&one.left) == given => Some(&*one.right),
                            _ => None,
                        });
                        let texts = match named {
                            Some(value) => self.texts(value, None),
                            None => self.of_name(given, true, None),
                        };
                        alternatives(texts, given)
                    }
                })
            }
            Some("concat") => {
                let parts: Vec<String> = arguments
                    .iter()
                    .flat_map(|one| self.texts(one, None))
                    .collect();
                vec![parts.concat()]
            }
            _ => Vec::new(),
        }
    }

    /// Returns the possible texts of a value in a text.
    fn part(self, value: &Expr) -> Vec<String> {
        alternatives(self.texts(value, None), &name(value))
    }
}

/// Returns the expressions of which one is the value.
pub(super) fn branches<'c>(value: &'c Expr, found: &mut Vec<&'c Expr>) {
    let last = |block: &'c Block, found: &mut Vec<&'c Expr>| {
        if let Some(Stmt::Expr(last, _)) = block.stmts.last() {
            branches(last, found);
        }
    };
    match value {
        Expr::Match(one) => one.arms.iter().for_each(|arm| branches(&arm.body, found)),
        Expr::If(one) => {
            last(&one.then_branch, found);
            if let Some((_, other)) = &one.else_branch {
                branches(other, found);
            }
        }
        Expr::Block(one) => last(&one.block, found),
        other => found.push(other),
    }
}

/// Returns words for use in a text, or a placeholder for them.
fn alternatives(mut texts: Vec<String>, name: &str) -> Vec<String> {
    texts.dedup();
    let words = texts
        .iter()
        .all(|text| text.is_empty() || text.contains(' ') && !text.contains('{'));
    if texts.iter().all(String::is_empty) || texts.len() > MAX_ALTERNATIVES || !words {
        vec![format!("{{{}}}", name.to_lowercase())]
    } else {
        texts
    }
}
