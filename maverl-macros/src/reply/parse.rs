//! Shape of a reply: a block with one of some words, or blocks that are parsed as values.

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{
    Attribute, Data, DataEnum, DataStruct, DeriveInput, Field, Fields, GenericArgument, Ident,
    Index, LitStr, Member, Path, PathArguments, Type, Variant,
};

use crate::args::{crate_path, krate, read_args, value};
use crate::errors::Errors;
use crate::{item, name};

/// A validated reply.
pub(crate) struct ReplyType {
    pub(crate) krate: Path,
    /// The format sentence, if it is given.
    pub(crate) format: Option<LitStr>,
    pub(crate) shape: ReplyShape,
}

/// Shape of the reply.
pub(crate) enum ReplyShape {
    /// One block with one of the words.
    Word { tag: String, words: Vec<Word> },
    /// One block per field.
    Blocks(Vec<Block>),
}

/// A variant and its word.
pub(crate) struct Word {
    pub(crate) variant: Ident,
    pub(crate) text: String,
}

/// A field and its block.
pub(crate) struct Block {
    pub(crate) member: Member,
    pub(crate) tag: String,
    /// Type of the value; the inner type of an `Option` for optional blocks.
    pub(crate) value: Type,
    pub(crate) optional: bool,
    pub(crate) about: String,
    pub(crate) example: Option<LitStr>,
}

/// `#[reply(..)]` on the type.
#[derive(Default)]
struct OnType {
    tag: Option<LitStr>,
    format: Option<LitStr>,
    krate: Option<Path>,
}

/// `#[reply(..)]` on a field.
#[derive(Default)]
struct OnField {
    tag: Option<LitStr>,
    example: Option<LitStr>,
}

impl ReplyType {
    pub(crate) fn parse(item: &DeriveInput) -> syn::Result<Self> {
        let mut errors = Errors::default();
        let on_type = OnType::read(&item.attrs, &mut errors);
        let shape = match &item.data {
            Data::Enum(data) => enum_shape(item, data, &on_type, &mut errors),
            Data::Struct(data) => struct_shape(item, data, &on_type, &mut errors),
            Data::Union(_) => {
                errors.at(&item.ident, "a reply is an enum or a struct");
                None
            }
        };
        if let (Some(shape), Some(format)) = (&shape, &on_type.format) {
            check_format(shape, format, &mut errors);
        }
        let OnType { format, krate: path, .. } = on_type;
        errors.finish(shape.map(|shape| Self { krate: krate(path), format, shape }))
    }
}

impl OnType {
    fn read(attrs: &[Attribute], errors: &mut Errors) -> Self {
        let mut found = Self::default();
        for_each_list(attrs, "#[reply(tag = \"word\")]", errors, |tokens, errors| {
            read_args(tokens, &["tag", "format", "crate"], errors, |key, input, _| {
                match key {
                    "tag" => found.tag = Some(value(input, "tag = \"word\"")?),
                    "format" => found.format = Some(value(input, "format = \"Reply with ..\"")?),
                    _ => found.krate = Some(crate_path(input)?),
                }
                Ok(())
            });
        });
        if let Some(tag) = &found.tag {
            check_tag(tag, errors);
        }
        found
    }
}

impl OnField {
    fn read(attrs: &[Attribute], errors: &mut Errors) -> Self {
        let mut found = Self::default();
        for_each_list(
            attrs,
            "#[reply(tag = \"word\", example = \"..\")]",
            errors,
            |tokens, errors| {
                read_args(tokens, &["tag", "example"], errors, |key, input, _| {
                    match key {
                        "tag" => found.tag = Some(value(input, "tag = \"word\"")?),
                        _ => found.example = Some(value(input, "example = \"..\"")?),
                    }
                    Ok(())
                });
            },
        );
        if let Some(tag) = &found.tag {
            check_tag(tag, errors);
        }
        found
    }
}

/// Calls `read` with the content of each `#[reply(..)]`.
fn for_each_list(
    attrs: &[Attribute],
    form: &str,
    errors: &mut Errors,
    mut read: impl FnMut(proc_macro2::TokenStream, &mut Errors),
) {
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("reply")) {
        match attr.meta.require_list() {
            Ok(list) => read(list.tokens.clone(), errors),
            Err(_) => errors.at_span(attr.span(), format!("write `{form}`")),
        }
    }
}

fn check_tag(tag: &LitStr, errors: &mut Errors) {
    let text = tag.value();
    if !is_tag(&text) {
        let fixed = name::snake(&text);
        let hint = if is_tag(&fixed) { format!("; try \"{fixed}\"") } else { String::new() };
        errors.at(tag, format!("a tag is a word without `<` and `>`{hint}"));
    }
}

fn is_tag(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
}

fn enum_shape(
    item: &DeriveInput,
    data: &DataEnum,
    on_type: &OnType,
    errors: &mut Errors,
) -> Option<ReplyShape> {
    if data.variants.is_empty() {
        errors
            .at(&item.ident, "there is nothing to reply: add a variant a word, `Approve, Reject`");
    }
    let mut words: Vec<Word> = Vec::new();
    for variant in &data.variants {
        if !matches!(variant.fields, Fields::Unit) {
            errors.at(
                &variant.fields,
                "a variant stands for a word and holds nothing; a reply with values is a struct",
            );
        }
        let (text, span) = word_of(variant, errors);
        if let Some(other) = words.iter().find(|word| word.text.eq_ignore_ascii_case(&text)) {
            let message = format!("`{}` is read from \"{}\" too", other.variant, other.text);
            errors.at_span(span, message);
        }
        words.push(Word { variant: variant.ident.clone(), text });
    }
    let tag = required_tag(item, on_type, errors)?;
    Some(ReplyShape::Word { tag, words })
}

/// Returns the word of a variant and its span.
fn word_of(variant: &Variant, errors: &mut Errors) -> (String, Span) {
    let mut given = None;
    for_each_list(&variant.attrs, "#[reply(\"word\")]", errors, |tokens, errors| {
        let span = tokens.span();
        match syn::parse2::<LitStr>(tokens) {
            Ok(word) if given.is_some() => errors.at(word, "a variant has one word; keep one"),
            Ok(word) => given = Some(word),
            Err(_) => errors.at_span(span, "a variant has a word: write `#[reply(\"word\")]`"),
        }
    });
    let Some(given) = given else {
        return (name::snake(&variant.ident.unraw().to_string()), variant.ident.span());
    };
    let text = given.value();
    if text.is_empty() || text != text.trim() || text.contains(['<', '>']) {
        errors.at(&given, "a word is not empty, has no space around it, and no `<` or `>`");
    }
    (text, given.span())
}

fn struct_shape(
    item: &DeriveInput,
    data: &DataStruct,
    on_type: &OnType,
    errors: &mut Errors,
) -> Option<ReplyShape> {
    match &data.fields {
        Fields::Unnamed(fields) if fields.unnamed.len() == 1 => {
            let tag = required_tag(item, on_type, errors);
            let field = fields.unnamed.first()?;
            let on_field = OnField::read(&field.attrs, errors);
            if let Some(tag) = &on_field.tag {
                errors.at(tag, "the tag stands on the type, above `struct`");
            }
            let member = Member::Unnamed(Index::from(0));
            Some(ReplyShape::Blocks(vec![block(field, member, tag?, on_field.example)]))
        }
        Fields::Named(fields) if !fields.named.is_empty() => {
            if let Some(tag) = &on_type.tag {
                let message =
                    "each field is a block of its own; put `#[reply(tag = \"..\")]` on the field";
                errors.at(tag, message);
            }
            Some(ReplyShape::Blocks(named_blocks(fields.named.iter(), errors)))
        }
        _ => {
            let message = format!(
                "a reply is `struct {name}(String);`, a struct with named fields, or an enum of words",
                name = item.ident
            );
            errors.at(&item.ident, message);
            None
        }
    }
}

fn named_blocks<'f>(fields: impl Iterator<Item = &'f Field>, errors: &mut Errors) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for field in fields {
        let Some(ident) = &field.ident else { continue };
        let on_field = OnField::read(&field.attrs, errors);
        let (tag, span) = match &on_field.tag {
            Some(tag) => (tag.value(), tag.span()),
            None => (ident.unraw().to_string(), ident.span()),
        };
        if blocks.iter().any(|block| block.tag.eq_ignore_ascii_case(&tag)) {
            errors.at_span(span, format!("two fields are read from <{tag}>; give one another tag"));
        }
        blocks.push(block(field, Member::Named(ident.clone()), tag, on_field.example));
    }
    blocks
}

fn block(field: &Field, member: Member, tag: String, example: Option<LitStr>) -> Block {
    let inside = inside_option(&field.ty);
    let about = item::summary(&field.attrs).trim_end_matches('.').to_owned();
    let optional = inside.is_some();
    let value = inside.unwrap_or(&field.ty).clone();
    Block { member, tag, value, optional, about, example }
}

/// Returns `T` of `Option<T>`.
fn inside_option(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == "Option")?;
    match &last.arguments {
        PathArguments::AngleBracketed(arguments) => match arguments.args.first()? {
            GenericArgument::Type(inside) => Some(inside),
            _ => None,
        },
        _ => None,
    }
}

fn required_tag(item: &DeriveInput, on_type: &OnType, errors: &mut Errors) -> Option<String> {
    if on_type.tag.is_none() {
        let word = name::snake(&item.ident.unraw().to_string());
        let message = format!("the reply's block needs a tag: `#[reply(tag = \"{word}\")]`");
        errors.at(&item.ident, message);
    }
    on_type.tag.as_ref().map(LitStr::value)
}

fn check_format(shape: &ReplyShape, format: &LitStr, errors: &mut Errors) {
    let tags: Vec<&String> = match shape {
        ReplyShape::Word { tag, .. } => vec![tag],
        ReplyShape::Blocks(blocks) => blocks.iter().map(|block| &block.tag).collect(),
    };
    let text = format.value().to_ascii_lowercase();
    for tag in tags.into_iter().filter(|tag| is_tag(tag)) {
        if !text.contains(&format!("<{}>", tag.to_ascii_lowercase())) {
            errors.at(
                format,
                format!("the sentence does not show <{tag}>, which the reply must have"),
            );
        }
    }
}
