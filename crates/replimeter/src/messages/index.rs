//! Declarations in the sources that are used to create messages.

use std::collections::{BTreeMap, BTreeSet};

use syn::{
    Attribute, Expr, Field, Fields, FnArg, GenericArgument, ImplItem, Item, Meta, Pat,
    PathArguments, ReturnType, Signature, Token, TraitItem, Type, TypeParamBound,
    punctuated::Punctuated,
};

/// A parsed file.
pub(super) struct Source {
    pub(super) krate: String,
    pub(super) module: String,
    pub(super) file: syn::File,
}

/// The part that a parameter or field has in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Operation,
    Cause,
    Hint,
}

impl Role {
    /// Returns the role of a parameter or field by its name.
    pub(super) fn of(name: &str) -> Option<Self> {
        match name {
            "operation" => Some(Self::Operation),
            "cause" | "message" | "reason" | "state" | "what" | "why" | "problem" => {
                Some(Self::Cause)
            }
            "hint" => Some(Self::Hint),
            _ => None,
        }
    }
}

/// A function that creates an error, warning or finding from its arguments.
pub(super) struct Constructor {
    /// The type that it belongs to, if any.
    pub(super) of: Option<String>,
    /// The module; a free function is known only in it.
    pub(super) file: (String, String),
    pub(super) method: bool,
    /// Without `self`.
    pub(super) roles: Vec<Option<Role>>,
}

/// A function that returns texts.
pub(super) struct Text<'a> {
    pub(super) file: (&'a str, &'a str),
    pub(super) block: &'a syn::Block,
}

#[derive(Default)]
pub(super) struct Index<'a> {
    /// Constant texts by name, each with its crate and module.
    pub(super) constants: BTreeMap<String, Vec<(&'a str, &'a str, &'a Expr)>>,
    pub(super) texts: BTreeMap<String, Vec<Text<'a>>>,
    pub(super) constructors: BTreeMap<String, Vec<Constructor>>,
    /// Types whose fields are a message.
    pub(super) errors: BTreeSet<String>,
    /// The format of an error by type and variant.
    pub(super) formats: BTreeMap<(String, String), String>,
}

/// Returns whether something belongs to tests.
pub(super) fn of_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        Meta::NameValue(_) => false,
    })
}

/// Returns all type names in a type.
fn names(of: &Type, found: &mut Vec<String>) {
    match of {
        Type::Path(path) => {
            for segment in &path.path.segments {
                found.push(segment.ident.to_string());
                if let PathArguments::AngleBracketed(arguments) = &segment.arguments {
                    for argument in &arguments.args {
                        if let GenericArgument::Type(of) = argument {
                            names(of, found);
                        }
                    }
                }
            }
        }
        Type::Reference(reference) => names(&reference.elem, found),
        Type::Tuple(tuple) => tuple.elems.iter().for_each(|one| names(one, found)),
        Type::ImplTrait(of) => {
            for bound in &of.bounds {
                if let TypeParamBound::Trait(bound) = bound {
                    for segment in &bound.path.segments {
                        found.push(segment.ident.to_string());
                        if let PathArguments::Parenthesized(arguments) = &segment.arguments
                            && let ReturnType::Type(_, of) = &arguments.output
                        {
                            names(of, found);
                        }
                    }
                }
            }
        }
        _ => {}
    }
}

pub(super) fn returned(signature: &Signature) -> Vec<String> {
    let mut found = Vec::new();
    if let ReturnType::Type(_, of) = &signature.output {
        names(of, &mut found);
    }
    found
}

fn is_text(name: &str) -> bool {
    ["String", "str", "Into", "Cow"].contains(&name)
}

/// Returns the name and type of each parameter but `self`.
fn parameters(signature: &Signature) -> impl Iterator<Item = (String, Vec<String>)> {
    signature.inputs.iter().filter_map(|input| match input {
        FnArg::Typed(typed) => {
            let mut types = Vec::new();
            names(&typed.ty, &mut types);
            let name = match &*typed.pat {
                Pat::Ident(ident) => ident.ident.to_string(),
                _ => String::new(),
            };
            Some((name, types))
        }
        _ => None,
    })
}

fn format_of(attributes: &[Attribute]) -> Option<String> {
    let attribute = attributes.iter().find(|one| one.path().is_ident("error"))?;
    let arguments = attribute
        .parse_args_with(Punctuated::<Expr, Token![,]>::parse_terminated)
        .ok()?;
    let mut arguments = arguments.iter();
    let Some(Expr::Lit(literal)) = arguments.next() else {
        return None;
    };
    let syn::Lit::Str(text) = &literal.lit else {
        return None;
    };
    let arguments: Vec<String> = arguments.map(super::texts::name).collect();
    Some(
        super::texts::fill(&text.value(), &|position, name| match name {
            Some(name) => vec![format!("{{{name}}}")],
            None => vec![format!(
                "{{{}}}",
                arguments.get(position).map_or("value", String::as_str)
            )],
        })
        .swap_remove(0),
    )
}

fn has_field(fields: &Fields, wanted: &str) -> bool {
    let name = |field: &Field| field.ident.as_ref().is_some_and(|name| name == wanted);
    fields.iter().any(name)
}

impl<'a> Index<'a> {
    pub(super) fn of(sources: &'a [Source]) -> Self {
        let mut index = Self::default();
        for source in sources {
            for item in &source.file.items {
                index.add_types(item);
            }
        }
        for source in sources {
            for item in &source.file.items {
                index.add(source, item);
            }
        }
        index
    }

    fn add_types(&mut self, item: &Item) {
        match item {
            Item::Struct(item) => {
                let format = format_of(&item.attrs);
                if format.is_some() || has_field(&item.fields, "hint") {
                    self.errors.insert(item.ident.to_string());
                }
                if let Some(format) = format {
                    let name = item.ident.to_string();
                    self.formats.insert((name.clone(), name), format);
                }
            }
            Item::Enum(item) => {
                for variant in &item.variants {
                    let format = format_of(&variant.attrs);
                    if format.is_some() || has_field(&variant.fields, "hint") {
                        self.errors.insert(item.ident.to_string());
                    }
                    if let Some(format) = format {
                        self.formats
                            .insert((item.ident.to_string(), variant.ident.to_string()), format);
                    }
                }
            }
            _ => {}
        }
    }

    fn add(&mut self, source: &'a Source, item: &'a Item) {
        match item {
            Item::Const(item) => self.add_constant(source, item.ident.to_string(), &item.expr),
            Item::Static(item) => self.add_constant(source, item.ident.to_string(), &item.expr),
            Item::Fn(item) if !of_tests(&item.attrs) => {
                self.add_function(source, None, &item.sig, Some(&item.block))
            }
            Item::Impl(item) => {
                let mut of = Vec::new();
                names(&item.self_ty, &mut of);
                for one in &item.items {
                    match one {
                        ImplItem::Fn(one) => {
                            self.add_function(
                                source,
                                of.first().cloned(),
                                &one.sig,
                                Some(&one.block),
                            );
                        }
                        ImplItem::Const(one) => {
                            self.add_constant(source, one.ident.to_string(), &one.expr)
                        }
                        _ => {}
                    }
                }
            }
            Item::Trait(item) => {
                for one in &item.items {
                    if let TraitItem::Fn(one) = one {
                        self.add_function(
                            source,
                            Some(item.ident.to_string()),
                            &one.sig,
                            one.default.as_ref(),
                        );
                    }
                }
            }
            Item::Mod(item) if !of_tests(&item.attrs) => {
                for item in item.content.iter().flat_map(|(_, items)| items) {
                    self.add(source, item);
                }
            }
            _ => {}
        }
    }

    fn add_constant(&mut self, source: &'a Source, name: String, value: &'a Expr) {
        self.constants
            .entry(name)
            .or_default()
            .push((&source.krate, &source.module, value));
    }

    fn add_function(
        &mut self,
        source: &'a Source,
        of: Option<String>,
        signature: &Signature,
        block: Option<&'a syn::Block>,
    ) {
        let returned = returned(signature);
        let name = signature.ident.to_string();
        let own = of.as_ref().is_some_and(|of| self.errors.contains(of));
        let makes = returned
            .iter()
            .any(|one| self.errors.contains(one) || own && one == "Self");
        let direct = !returned.iter().any(|one| one == "Result");
        if makes {
            let role = |(name, types): (String, Vec<String>)| {
                let role = Role::of(&name).filter(|_| types.iter().any(|one| is_text(one)))?;
                (direct || role == Role::Operation).then_some(role)
            };
            let roles: Vec<Option<Role>> = parameters(signature).map(role).collect();
            if roles.iter().any(Option::is_some) {
                self.constructors
                    .entry(name)
                    .or_default()
                    .push(Constructor {
                        of,
                        file: (source.krate.clone(), source.module.clone()),
                        method: signature.receiver().is_some(),
                        roles,
                    });
            }
        } else if direct
            && returned.iter().any(|one| is_text(one))
            && let Some(block) = block
        {
            let file = (source.krate.as_str(), source.module.as_str());
            self.texts
                .entry(name)
                .or_default()
                .push(Text { file, block });
        }
    }
}
