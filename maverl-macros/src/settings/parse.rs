//! Attributes of a struct of settings and of its fields.

use proc_macro2::{Literal, Span, TokenStream};
use quote::quote;
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::spanned::Spanned;
use syn::{
    Attribute, Data, DeriveInput, Expr, ExprCall, ExprLit, Field, Fields, Ident, Lit, LitStr, Path,
    RangeLimits, Type, Visibility,
};

use crate::args::{crate_path, krate, read_args, value};
use crate::errors::Errors;
use crate::item::{documentation, listed_paths};

const ON_STRUCT: [&str; 4] = ["partial", "level", "by_hand", "crate"];
const ON_FIELD: [&str; 14] = [
    "default",
    "range",
    "level",
    "key",
    "written",
    "example",
    "table",
    "inner",
    "when",
    "always",
    "optional",
    "skip",
    "idle_when",
    "idle_unless",
];

/// A struct with resolved settings.
pub(crate) struct SettingsType<'i> {
    pub(crate) krate: Path,
    pub(crate) ident: &'i Ident,
    pub(crate) vis: &'i Visibility,
    /// Documentation of the struct, for its partial form.
    pub(crate) docs: Vec<&'i Attribute>,
    /// Name of the form in which every key is optional; without one, users write the struct itself.
    pub(crate) partial: Option<Ident>,
    /// The conversion from the partial form is written by hand.
    pub(crate) by_hand: bool,
    pub(crate) fields: Vec<Setting<'i>>,
}

/// A field, which is a key.
pub(crate) struct Setting<'i> {
    pub(crate) ident: &'i Ident,
    pub(crate) ty: &'i Type,
    pub(crate) docs: Vec<&'i Attribute>,
    pub(crate) text: String,
    /// Identifier in the partial form.
    pub(crate) key: Ident,
    pub(crate) level: String,
    pub(crate) default: Option<Expr>,
    pub(crate) range: Option<RangeAttribute>,
    /// Type in the partial form, where it is another one.
    pub(crate) written: Option<Type>,
    pub(crate) example: Option<String>,
    /// Condition under which a table is written.
    pub(crate) when: Option<Expr>,
    /// Conditions on another key under which this one has no effect: if it holds, or if it does not.
    pub(crate) idle: Vec<(bool, LitStr)>,
    pub(crate) kind: SettingsKind,
}

/// Kind of a field in the partial form.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum SettingsKind {
    /// May be left out.
    Optional,
    /// Is always there.
    Always,
    /// Is a table of settings.
    Table,
    /// Is a table of settings in a struct that users write as it is.
    Inner,
    /// Is an `Option` in both forms.
    Same,
    /// Is no key.
    Skip,
}

/// A range of numbers: value of each end and if it is inside.
pub(crate) struct RangeAttribute {
    pub(crate) from: Option<(Expr, bool)>,
    pub(crate) to: Option<(Expr, bool)>,
    pub(crate) whole: bool,
}

impl<'i> SettingsType<'i> {
    pub(crate) fn parse(item: &'i DeriveInput) -> syn::Result<Self> {
        let mut errors = Errors::default();
        let (mut partial, mut level, mut path, mut by_hand) = (None, None, None, false);
        for list in lists(&item.attrs, "settings", &mut errors) {
            read_args(list, &ON_STRUCT, &mut errors, |key, input, _| {
                match key {
                    "partial" => {
                        partial = Some(value::<LitStr>(input, "partial = \"NameConfig\"")?)
                    }
                    "level" => level = Some(level_of(input)?),
                    "by_hand" => by_hand = true,
                    _ => path = Some(crate_path(input)?),
                }
                Ok(())
            });
        }
        let partial = partial.and_then(|name| errors.keep(name.parse::<Ident>()));
        let level = level.unwrap_or_else(|| "run".to_owned());
        let mut fields = Vec::new();
        match &item.data {
            Data::Struct(data) if matches!(data.fields, Fields::Named(_)) => {
                let parsed = data.fields.iter().filter_map(|f| Setting::parse(f, &level, &mut errors));
                fields.extend(parsed);
            }
            _ => errors.at(
                &item.ident,
                format!("settings are a struct whose fields have names: write `struct {} {{ key: f64 }}`", item.ident),
            ),
        }
        let (ident, vis, docs) = (&item.ident, &item.vis, docs(&item.attrs));
        let settings = Self { krate: krate(path), ident, vis, docs, partial, by_hand, fields };
        errors.finish(Some(settings))
    }
}

impl<'i> Setting<'i> {
    fn parse(field: &'i Field, level: &str, errors: &mut Errors) -> Option<Self> {
        let ident = field.ident.as_ref()?;
        let mut setting = Self {
            ident,
            ty: &field.ty,
            docs: docs(&field.attrs),
            text: documentation(&field.attrs),
            key: ident.clone(),
            level: level.to_owned(),
            default: None,
            range: None,
            written: None,
            example: None,
            when: None,
            idle: Vec::new(),
            kind: SettingsKind::Optional,
        };
        if listed_paths(&field.attrs, "serde").iter().any(|name| name == "skip") {
            setting.kind = SettingsKind::Skip;
        }
        for list in lists(&field.attrs, "setting", errors) {
            read_args(list, &ON_FIELD, errors, |key, input, _| setting.argument(key, input));
        }
        if setting.text.is_empty() && setting.kind != SettingsKind::Skip {
            let name = ident.unraw();
            errors.at(ident, format!("the key `{name}` has no documentation: write `/// ..`, which is its description"));
        }
        Some(setting)
    }

    fn argument(&mut self, key: &str, input: ParseStream<'_>) -> syn::Result<()> {
        match key {
            "default" => self.default = Some(value(input, "default = 0.2")?),
            "range" => {
                self.range = Some(RangeAttribute::parse(value(input, "range = 0.0..=1.0")?)?)
            }
            "level" => self.level = level_of(input)?,
            "key" => self.key = value::<LitStr>(input, "key = \"name\"")?.parse()?,
            "written" => self.written = Some(value(input, "written = NonZeroUsize")?),
            "example" => {
                self.example = Some(value::<LitStr>(input, "example = \"{ lr = 1e-5 }\"")?.value());
            }
            "when" => self.when = Some(value(input, "when = self.mode == Mode::Own")?),
            "idle_when" => self.idle.push((true, value(input, "idle_when = \"epochs = 1\"")?)),
            "idle_unless" => {
                self.idle.push((false, value(input, "idle_unless = \"kind = 'own'\"")?));
            }
            "table" => self.kind = SettingsKind::Table,
            "inner" => self.kind = SettingsKind::Inner,
            "optional" => self.kind = SettingsKind::Same,
            "skip" => self.kind = SettingsKind::Skip,
            _ => self.kind = SettingsKind::Always,
        }
        Ok(())
    }

    /// Type in the partial form, inside the `Option`.
    pub(crate) fn written_type(&self) -> &Type {
        self.written.as_ref().unwrap_or(self.ty)
    }

    /// The value without anything written.
    pub(crate) fn default(&self) -> TokenStream {
        match &self.default {
            Some(Expr::Lit(ExprLit { lit: Lit::Str(text), .. })) => {
                quote!(::std::string::String::from(#text))
            }
            Some(Expr::Lit(ExprLit { lit: Lit::Int(number), .. })) if is_nonzero(self.ty) => {
                let ty = self.ty;
                match number.base10_parse::<u64>().ok().and_then(|number| number.checked_sub(1)) {
                    Some(above) => {
                        let above = Literal::u64_unsuffixed(above);
                        quote!(<#ty>::MIN.saturating_add(#above))
                    }
                    None => syn::Error::new(number.span(), "the type has no such number")
                        .to_compile_error(),
                }
            }
            Some(value) => quote!(#value),
            None => quote!(::core::default::Default::default()),
        }
    }
}

impl RangeAttribute {
    fn parse(written: Expr) -> syn::Result<Self> {
        let span = written.span();
        let Expr::Range(range) = written else { return Err(wrong_range(span)) };
        let from = range.start.map(|start| start_of(*start)).transpose()?;
        let included = matches!(range.limits, RangeLimits::Closed(_));
        let whole = from.as_ref().is_some_and(|(start, _)| is_whole(start));
        Ok(Self { from, to: range.end.map(|end| (*end, included)), whole })
    }
}

/// The start of a range: a number, which is inside, or `above(number)`.
fn start_of(start: Expr) -> syn::Result<(Expr, bool)> {
    match start {
        Expr::Call(ExprCall { func, mut args, .. }) => {
            let above = matches!(*func, Expr::Path(ref path) if path.path.is_ident("above"));
            let argument = args.pop().filter(|_| above && args.is_empty());
            let argument = argument.ok_or_else(|| wrong_range(func.span()))?;
            Ok((argument.into_value(), false))
        }
        start => Ok((start, true)),
    }
}

fn wrong_range(span: Span) -> syn::Error {
    let message = "a range is `0.0..=1.0`, `0.0..1.0`, `0.0..`, `above(0.0)..`, `above(0.0)..=1.0` or `1..=64`";
    syn::Error::new(span, message)
}

/// Returns true for `NonZeroUsize` and its kind.
fn is_nonzero(ty: &Type) -> bool {
    let Type::Path(path) = ty else { return false };
    path.path.segments.last().is_some_and(|last| last.ident.to_string().starts_with("NonZero"))
}

fn is_whole(number: &Expr) -> bool {
    matches!(number, Expr::Lit(ExprLit { lit: Lit::Int(_), .. }))
}

fn level_of(input: ParseStream<'_>) -> syn::Result<String> {
    let level: LitStr = value(input, "level = \"agent\"")?;
    let text = level.value();
    if ["agent", "policy", "team", "run"].contains(&text.as_str()) {
        return Ok(text);
    }
    let message =
        format!("there is no level `{text}`; write \"agent\", \"policy\", \"team\" or \"run\"");
    Err(syn::Error::new(level.span(), message))
}

fn docs(attrs: &[Attribute]) -> Vec<&Attribute> {
    attrs.iter().filter(|attr| attr.path().is_ident("doc")).collect()
}

/// Arguments of each attribute of this name.
pub(super) fn lists(attrs: &[Attribute], name: &str, errors: &mut Errors) -> Vec<TokenStream> {
    let attrs = attrs.iter().filter(|attr| attr.path().is_ident(name));
    attrs
        .filter_map(|attr| errors.keep(attr.meta.require_list()).map(|list| list.tokens.clone()))
        .collect()
}
