//! Values that files and the command line hold as text.

/// Declares an enum of words: `Variant = "word"`.
#[macro_export]
macro_rules! words {
    (
        $(#[$meta:meta])*
        pub enum $type:ident { $($(#[$about:meta])* $variant:ident = $word:literal,)+ }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $type {
            $($(#[$about])* $variant,)+
        }

        impl $type {
            /// All of them, in order.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// Returns its name in plans, documents and reports.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// Returns the one of this name.
            #[must_use]
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|one| one.name() == name)
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

/// Declares an enum of words once for the command line, plan files and their schema; the doc comment is its help text.
#[macro_export]
macro_rules! one_of {
    (
        $(#[$meta:meta])*
        pub enum $type:ident { $($(#[$about:meta])* $variant:ident = $word:literal,)+ }
    ) => {
        $crate::words! {
            $(#[$meta])*
            #[derive(
                clap::ValueEnum, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
            )]
            pub enum $type {
                $($(#[$about])* #[serde(rename = $word)] #[value(name = $word)] $variant = $word,)+
            }
        }
    };
}

/// Implements `Serialize` by `Display`, `Deserialize` by `FromStr`, and `JsonSchema`
/// as a text with the attributes given after the type: a description, examples, a pattern.
#[macro_export]
macro_rules! serde_as_text {
    ($type:ty, $($schema:tt)+) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", $($schema)+ })
            }
        }
    };
}

/// Writes a value as a number if its text is one, else as its text, and reads both.
#[macro_export]
macro_rules! serde_as_number_or_text {
    ($type:ty, $($schema:tt)+) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let text = self.to_string();
                match text.parse() {
                    Ok(number) => serializer.serialize_u64(number),
                    Err(_) => serializer.serialize_str(&text),
                }
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;

                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $type;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("a number or a text")
                    }

                    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<$type, E> {
                        self.visit_str(&number.to_string())
                    }

                    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<$type, E> {
                        self.visit_str(&number.to_string())
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                }

                deserializer.deserialize_any(Visitor)
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": ["integer", "string"], $($schema)+ })
            }
        }
    };
}
