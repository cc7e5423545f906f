//! Collects the messages of errors, warnings and findings from the places that create them.

use std::collections::{BTreeMap, BTreeSet};

use syn::{
    Expr, ExprCall, ExprMethodCall, ExprStruct, ExprTuple, ImplItemFn, Item, ItemFn, Pat, Path,
    Type,
    punctuated::Punctuated,
    visit::{self, Visit},
};

use super::{
    Kind, Messages,
    index::{Constructor, Index, Role, Source, of_tests, returned},
    texts::{Names, Scope, branches, name},
};

pub(super) fn messages(sources: &[Source], index: &Index<'_>) -> Messages {
    let mut found = Messages::new();
    for source in sources {
        let mut collector = Collector {
            index,
            source,
            names: Vec::new(),
            of: Vec::new(),
            texts_fail: Vec::new(),
            found: BTreeMap::new(),
        };
        collector.visit_file(&source.file);
        let attached: BTreeSet<String> = collector.found.values().flatten().cloned().collect();
        collector
            .found
            .retain(|(kind, text), _| *kind != Kind::Hint || !attached.contains(text));
        if !collector.found.is_empty() {
            found.insert(
                (source.krate.clone(), source.module.clone()),
                collector.found,
            );
        }
    }
    found
}

struct Collector<'a, 'b> {
    index: &'b Index<'a>,
    source: &'a Source,
    /// Scopes of the enclosing functions, the innermost last.
    names: Vec<Names<'a>>,
    /// The types of the enclosing `impl` blocks.
    of: Vec<String>,
    /// Whether the error of each enclosing function is a text.
    texts_fail: Vec<bool>,
    found: BTreeMap<(Kind, String), BTreeSet<String>>,
}

/// Returns `SemiSyncOff` as `semi-sync-off`.
fn kebab(name: &str) -> String {
    let mut made = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !made.is_empty() {
            made.push('-');
        }
        made.extend(letter.to_lowercase());
    }
    made
}

/// Returns the last two names of a path.
fn ends(path: &Path) -> (Option<String>, String) {
    let mut names = path.segments.iter().rev().map(|one| one.ident.to_string());
    let last = names.next().unwrap_or_default();
    (names.next(), last)
}

/// Returns the placeholder for the message of a warning or finding that is created elsewhere.
fn named(kind: &Kind, message: &Expr) -> Vec<String> {
    match kind {
        Kind::Warning(_) | Kind::Finding(_) => vec![format!("{{{}}}", name(message))],
        Kind::Error | Kind::Hint => Vec::new(),
    }
}

/// Returns the kind that a code names.
fn kind_of(value: &Expr) -> Option<Kind> {
    let Expr::Path(path) = value else {
        return None;
    };
    match ends(&path.path) {
        (Some(of), code) if of == "WarningCode" => Some(Kind::Warning(kebab(&code))),
        (Some(of), code) if of == "FindingCode" || of == "Code" => {
            Some(Kind::Finding(kebab(&code)))
        }
        (Some(of), _) if of == "ErrorKind" => Some(Kind::Error),
        _ => None,
    }
}

impl<'a> Collector<'a, '_> {
    /// Returns the kinds that a code, or a variable for one of several, names.
    fn kinds(&self, value: &Expr) -> Vec<Kind> {
        let variable = match value {
            Expr::Path(path) if path.path.is_ident("code") => {
                self.names.last().and_then(|names| names.value("code"))
            }
            _ => None,
        };
        let mut all = Vec::new();
        branches(variable.unwrap_or(value), &mut all);
        all.into_iter().filter_map(kind_of).collect()
    }

    fn texts(&self, value: &Expr) -> Vec<String> {
        // They are added at their declaration.
        if matches!(value, Expr::MethodCall(call) if call.method == "hint") {
            return Vec::new();
        }
        let none = Names::default();
        let names = self.names.last().unwrap_or(&none);
        Scope::new(self.index, self.source, names).texts(value, None)
    }

    /// Returns the texts of a message and its hint, pairwise where both are of the same tuples.
    fn pairs(&self, message: &Expr, hint: &Expr) -> Vec<(Vec<String>, Vec<String>)> {
        let none = Names::default();
        let names = self.names.last().unwrap_or(&none);
        let scope = Scope::new(self.index, self.source, names);
        match (names.in_tuple(message), names.in_tuple(hint)) {
            (Some((one, of_message)), Some((other, of_hint))) if std::ptr::eq(one, other) => {
                let mut all = Vec::new();
                branches(one, &mut all);
                let pair = |one| {
                    (
                        scope.texts(one, Some(of_message)),
                        scope.texts(one, Some(of_hint)),
                    )
                };
                let all = all.into_iter().map(pair);
                // Texts that a function returns are added at that function.
                all.filter(|(messages, hints)| messages.len() < 2 || hints.len() < 2)
                    .collect()
            }
            _ => vec![(self.texts(message), self.texts(hint))],
        }
    }

    fn add(&mut self, kind: Kind, messages: Vec<String>, hints: Vec<String>) {
        // A shorter text is a part of a message.
        let whole = |text: &String| {
            text.split_whitespace().count() > 2 && !text.trim_start().starts_with(['(', ';'])
        };
        let worded = |text: &String| whole(text) || kind != Kind::Error;
        let hints: Vec<String> = hints.into_iter().filter(|text| worded(text)).collect();
        let messages: Vec<String> = messages.into_iter().filter(|text| worded(text)).collect();
        if messages.is_empty() {
            for hint in hints {
                self.found.entry((Kind::Hint, hint)).or_default();
            }
            return;
        }
        for message in messages {
            self.found
                .entry((kind.clone(), message))
                .or_default()
                .extend(hints.iter().cloned());
        }
    }

    /// Adds the arguments after a code; returns whether there is a code.
    fn add_coded<'c>(&mut self, values: impl Iterator<Item = &'c Expr>, tuple: bool) -> bool {
        let values: Vec<&Expr> = values.collect();
        let kinds = values.iter().map(|one| self.kinds(one)).enumerate();
        let Some((at, kinds)) = kinds.into_iter().find(|(_, kinds)| !kinds.is_empty()) else {
            return false;
        };
        for kind in kinds {
            self.add_behind(kind, &values[at + 1..], tuple);
        }
        values.len() > at + 1
    }

    fn add_behind(&mut self, kind: Kind, after: &[&Expr], tuple: bool) {
        match after {
            [] => {}
            // Its message is the server's.
            [hint] if tuple && kind == Kind::Error => {
                let hint = self.texts(hint);
                self.add(Kind::Hint, Vec::new(), hint);
            }
            [message] => {
                let message = self.texts(message);
                self.add(kind, message, Vec::new());
            }
            [.., message, hint] => {
                for (texts, hint) in self.pairs(message, hint) {
                    let texts = if texts.is_empty() {
                        named(&kind, message)
                    } else {
                        texts
                    };
                    self.add(kind.clone(), texts, hint);
                }
            }
        }
    }

    /// Adds an error with these parts.
    fn add_parts<'c>(&mut self, parts: impl Iterator<Item = (Role, &'c Expr)>) {
        let parts: Vec<(Role, &Expr)> = parts.collect();
        let first = |wanted: Role| {
            parts
                .iter()
                .find(|(role, _)| *role == wanted)
                .map(|(_, value)| *value)
        };
        let texts = |wanted: Role| first(wanted).map_or_else(Vec::new, |value| self.texts(value));
        let (operations, cause) = (texts(Role::Operation), first(Role::Cause));
        let pairs = match (cause, first(Role::Hint)) {
            (Some(cause), Some(hint)) => self.pairs(cause, hint),
            _ => vec![(texts(Role::Cause), texts(Role::Hint))],
        };
        for (causes, hints) in pairs {
            self.add_error(&operations, causes, cause.is_some(), hints);
        }
    }

    fn add_error(
        &mut self,
        operations: &[String],
        causes: Vec<String>,
        has_cause: bool,
        hints: Vec<String>,
    ) {
        let messages = match (operations, &causes[..]) {
            (_, []) if has_cause || !hints.is_empty() => operations
                .iter()
                .map(|operation| format!("{operation}: {{cause}}"))
                .collect(),
            // Others are a verb in a format.
            (_, []) => {
                let whole = operations.iter().filter(|one| one.starts_with("cannot "));
                whole
                    .map(|operation| format!("{operation}: {{cause}}"))
                    .collect()
            }
            ([], _) => causes,
            (operations, causes) => operations
                .iter()
                .flat_map(|operation| {
                    causes
                        .iter()
                        .map(move |cause| format!("{operation}: {cause}"))
                })
                .collect(),
        };
        self.add(Kind::Error, messages, hints);
    }

    fn constructor(
        &self,
        name: &str,
        of: Option<&str>,
        method: bool,
        arguments: usize,
    ) -> Option<&Constructor> {
        let own = (&self.source.krate, &self.source.module);
        let of = if of == Some("Self") {
            self.of.last().map(String::as_str)
        } else {
            of
        };
        let all = self.index.constructors.get(name)?.iter();
        let fits = |one: &&Constructor| {
            one.roles.len() == arguments
                && one.method == method
                && (method || of.is_none() || one.of.as_deref() == of || one.of.is_none())
                && (method || of.is_some() || one.of.is_none())
        };
        let all: Vec<&Constructor> = all.filter(fits).collect();
        let here = all.iter().find(|one| (&one.file.0, &one.file.1) == own);
        here.or(all.first()).copied()
    }

    fn add_call(
        &mut self,
        constructor: Option<Vec<Option<Role>>>,
        arguments: &Punctuated<Expr, syn::Token![,]>,
    ) -> bool {
        let Some(roles) = constructor else {
            return false;
        };
        let parts = roles
            .into_iter()
            .zip(arguments)
            .filter_map(|(role, one)| Some((role?, one)));
        self.add_parts(parts);
        true
    }

    /// Returns the roles of a closure's parameters: those of a closure that makes an error.
    fn closure(&self, name: &str) -> Option<Vec<Option<Role>>> {
        let Some(Expr::Closure(closure)) =
            self.names.iter().rev().find_map(|names| names.value(name))
        else {
            return None;
        };
        let mut makes = Makes {
            index: self.index,
            found: false,
        };
        makes.visit_expr(&closure.body);
        let role = |pattern: &Pat| match pattern {
            Pat::Ident(ident) => Role::of(&ident.ident.to_string()),
            Pat::Type(typed) => match &*typed.pat {
                Pat::Ident(ident) => Role::of(&ident.ident.to_string()),
                _ => None,
            },
            _ => None,
        };
        makes
            .found
            .then(|| closure.inputs.iter().map(role).collect())
    }

    fn in_function(
        &mut self,
        signature: &syn::Signature,
        block: &'a syn::Block,
        inner: impl FnOnce(&mut Self),
    ) {
        let returned = returned(signature);
        let fails = returned.iter().any(|one| one == "Result")
            && returned
                .last()
                .is_some_and(|last| last == "String" || last == "str");
        if signature.ident == "hint" && returned.iter().any(|one| one == "String" || one == "str") {
            let names = Names::of(block);
            let block = Expr::Block(syn::ExprBlock {
                attrs: Vec::new(),
                label: None,
                block: block.clone(),
            });
            let hints = Scope::new(self.index, self.source, &names).texts(&block, None);
            self.add(Kind::Hint, Vec::new(), hints);
        }
        self.names.push(Names::of(block));
        self.texts_fail.push(fails);
        inner(self);
        self.names.pop();
        self.texts_fail.pop();
    }

    fn add_formats(&mut self, of: &str, variants: impl Iterator<Item = String>) {
        for variant in variants {
            if let Some(format) = self.index.formats.get(&(of.to_owned(), variant)) {
                // Only names: the text is at the place that creates it.
                let words = format.split(['{', '}']).step_by(2).collect::<String>();
                if words.chars().any(char::is_alphabetic) {
                    self.add(Kind::Error, vec![format.clone()], Vec::new());
                }
            }
        }
    }
}

/// Checks whether an error is created.
struct Makes<'a, 'b> {
    index: &'b Index<'a>,
    found: bool,
}

impl<'c> Visit<'c> for Makes<'_, '_> {
    fn visit_path(&mut self, path: &'c Path) {
        let of_error = |name: &str| self.index.errors.contains(name);
        let (of, name) = ends(path);
        let makes = self.index.constructors.contains_key(&name);
        self.found |= of_error(&name) || of.is_some_and(|of| of_error(&of)) || makes;
        visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'c ExprMethodCall) {
        self.found |= self
            .index
            .constructors
            .contains_key(&call.method.to_string());
        visit::visit_expr_method_call(self, call);
    }
}

impl<'a> Visit<'a> for Collector<'a, '_> {
    fn visit_item(&mut self, item: &'a Item) {
        match item {
            Item::Mod(one) if of_tests(&one.attrs) => {}
            Item::Enum(one) => {
                self.add_formats(
                    &one.ident.to_string(),
                    one.variants.iter().map(|one| one.ident.to_string()),
                );
            }
            Item::Struct(one) => {
                self.add_formats(&one.ident.to_string(), [one.ident.to_string()].into_iter())
            }
            Item::Impl(one) => {
                let of = match &*one.self_ty {
                    Type::Path(path) => ends(&path.path).1,
                    _ => String::new(),
                };
                self.of.push(of);
                visit::visit_item(self, item);
                self.of.pop();
            }
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_item_fn(&mut self, item: &'a ItemFn) {
        if !of_tests(&item.attrs) {
            self.in_function(&item.sig, &item.block, |this| {
                visit::visit_item_fn(this, item)
            });
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'a ImplItemFn) {
        self.in_function(&item.sig, &item.block, |this| {
            visit::visit_impl_item_fn(this, item)
        });
    }

    fn visit_expr_struct(&mut self, one: &'a ExprStruct) {
        visit::visit_expr_struct(self, one);
        let (of, name) = ends(&one.path);
        let own = |name: &str| match name {
            "Self" => self.of.last().cloned().unwrap_or_default(),
            other => other.to_owned(),
        };
        let (of, name) = (of.map(|of| own(&of)), own(&name));
        let Some(of) = [of.unwrap_or_default(), name.clone()]
            .into_iter()
            .find(|one| self.index.errors.contains(one))
        else {
            return;
        };
        let field = |field: &'a syn::FieldValue| match &field.member {
            syn::Member::Named(name) => Some((name.to_string(), &field.expr)),
            syn::Member::Unnamed(_) => None,
        };
        let fields: Vec<(String, &Expr)> = one.fields.iter().filter_map(field).collect();
        let field = |wanted: &str| {
            fields
                .iter()
                .find(|(name, _)| name == wanted)
                .map(|(_, value)| *value)
        };
        if let (Some(code), Some(message), Some(hint)) =
            (field("code"), field("message"), field("hint"))
        {
            for kind in self.kinds(code) {
                self.add_behind(kind, &[message, hint], false);
            }
            return;
        }
        let Some(format) = self.index.formats.get(&(of, name)) else {
            self.add_parts(
                fields
                    .iter()
                    .filter_map(|(name, value)| Some((Role::of(name)?, *value))),
            );
            return;
        };
        // The format with the texts of its fields.
        let hint = fields
            .iter()
            .find(|(name, _)| name == "hint")
            .map(|(_, value)| *value);
        let cause = fields
            .iter()
            .find(|(name, _)| Role::of(name) == Some(Role::Cause))
            .map(|(_, value)| *value);
        if let (Some(cause), Some(hint)) = (cause, hint)
            && self.pairs(cause, hint).len() != 1
        {
            // The tuples are added at their own place.
            return;
        }
        let hints = hint.map_or_else(Vec::new, |hint| self.texts(hint));
        let mut made = vec![format.clone()];
        for (name, value) in &fields {
            // A function's text may be one of several, of which some are not known.
            let texts = match value {
                Expr::Call(_) => Vec::new(),
                value => self.texts(value),
            };
            let hole = format!("{{{name}}}");
            if name != "hint" && format.contains(&hole) && !texts.is_empty() {
                let all = made
                    .iter()
                    .flat_map(|one| texts.iter().map(|text| one.replace(&hole, text)));
                made = all.collect();
            }
        }
        if made.as_slice() != [format.clone()] || !hints.is_empty() {
            let words = made[0].split(['{', '}']).step_by(2).collect::<String>();
            let made = if words.chars().any(char::is_alphabetic) {
                made
            } else {
                Vec::new()
            };
            self.add(Kind::Error, made, hints);
        }
    }

    fn visit_expr_tuple(&mut self, tuple: &'a ExprTuple) {
        visit::visit_expr_tuple(self, tuple);
        self.add_coded(tuple.elems.iter(), true);
    }

    fn visit_expr_call(&mut self, call: &'a ExprCall) {
        visit::visit_expr_call(self, call);
        if self.add_coded(call.args.iter(), false) {
            return;
        }
        let Expr::Path(path) = &*call.func else {
            return;
        };
        let (of, name) = ends(&path.path);
        let of = of.filter(|of| of.starts_with(char::is_uppercase));
        if name == "Err" && self.texts_fail.last() == Some(&true) {
            let texts = call
                .args
                .first()
                .map_or_else(Vec::new, |one| self.texts(one));
            self.add(Kind::Error, texts, Vec::new());
            return;
        }
        let roles = match of {
            None => self.closure(&name),
            Some(_) => None,
        };
        let found = self.constructor(&name, of.as_deref(), false, call.args.len());
        let roles = roles.or_else(|| found.map(|one| one.roles.clone()));
        self.add_call(roles, &call.args);
    }

    fn visit_expr_method_call(&mut self, call: &'a ExprMethodCall) {
        visit::visit_expr_method_call(self, call);
        if self.add_coded(call.args.iter(), false) {
            return;
        }
        let name = call.method.to_string();
        let fails = ["ok_or", "ok_or_else", "map_err"].contains(&name.as_str());
        if fails && self.texts_fail.last() == Some(&true) {
            let texts = call
                .args
                .first()
                .map_or_else(Vec::new, |one| self.texts(one));
            self.add(Kind::Error, texts, Vec::new());
            return;
        }
        let roles = self
            .constructor(&name, None, true, call.args.len())
            .map(|one| one.roles.clone());
        self.add_call(roles, &call.args);
    }
}
