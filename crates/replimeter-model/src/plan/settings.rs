//! Settings of a measurement, declared once for the command line, plan files and documents.

use std::fmt;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use toml::{Table, Value};

use super::{PlanError, TargetSettings};
use crate::target::Target;

/// Declares the settings of a measurement, and its plan.
///
/// An item is a setting: its help, field, value in the help, type, default, and checks of its value alone. It becomes an option of the
/// command, a key of plan files and documents, and a field of the plan:
///
/// ```text
/// [Measurement]                                            heading of the options that follow
/// /// Measure for this time [default: {default}]
/// duration "TIME": TimeSpan = TimeSpan::from_secs(60);     the plan has a TimeSpan, the settings an Option of it
/// rate "N": Option<u64>, above_zero("");                   without a default, both have this type
/// row_size "BYTES" if (writers > 0): u64 = 100;            the settings drop it unless this is true
/// fronts "N" if (http) else "through = http": u32 = 2;     it is refused unless this is true
/// only seed "N": Option<u64>;                              not in the plan
/// file nodes: Vec<NodeSpec>;                               no option
/// keep_awake;                                              a setting that several measurements have, declared here
/// plan
/// cores: CoreUse = CoreUse::decide(…);                     in the plan only
/// ```
///
/// The function `resolve` fills them in, checks them and returns the plan, in this order: a default can name the fields above it, the
/// settings (`given`) and the targets.
#[macro_export]
macro_rules! settings {
    // [heading, the settings] [fields] [statements] [fields of the plan] {types}, then the items that are left.
    (@[$old:ident $given:ident] $fields:tt $fill:tt $planned:tt $types:tt [$heading:ident] $($rest:tt)*) => {
        $crate::settings! { @[$heading $given] $fields $fill $planned $types $($rest)* }
    };
    (@[$heading:ident $given:ident] $fields:tt $fill:tt $planned:tt $types:tt $(#[$about:meta])* keep_awake $($more:literal)?; $($rest:tt)*) => {
        $crate::settings! { @[Client $given] $fields $fill $planned $types
            $(#[$about])*
            ///
            /// Spinners at idle priority do it: a core that has to wake up delays what is measured.
            $(#[doc = $more])?
            #[arg(value_parser = $crate::plan::on_off())]
            only keep_awake "ON|OFF": Option<bool>;
            [$heading] $($rest)*
        }
    };
    (@[$heading:ident $given:ident] $fields:tt $fill:tt $planned:tt $types:tt $(#[$about:meta])* keep_awake_under_load; $($rest:tt)*) => {
        $crate::settings! { @[$heading $given] $fields $fill $planned $types
            $(#[$about])*
            keep_awake " A load of more than one thread keeps the cores busy, and the spinners would cost it throughput.";
            $($rest)*
        }
    };
    (@[$heading:ident $given:ident] $fields:tt $fill:tt $planned:tt $types:tt real_time; $($rest:tt)*) => {
        $crate::settings! { @[Client $given] $fields $fill $planned $types
            /// Give measuring threads real-time priority [default: on without local servers]
            ///
            /// They then do not wait for a busy core. Where servers run on this machine they would take its cores from them, which
            /// raises the lag.
            #[arg(value_parser = $crate::plan::on_off())]
            only real_time "ON|OFF": Option<bool>;
            [$heading] $($rest)*
        }
    };
    (@[$heading:ident $given:ident] $fields:tt $fill:tt $planned:tt $types:tt $(#[$about:meta])* background_load; $($rest:tt)*) => {
        $crate::settings! { @[Load $given] $fields $fill $planned $types
            $(#[$about])*
            only load "WORKLOAD:THREADS@NODE": Vec<$crate::load::LoadSpec>;

            /// Passes of the workload per second (open loop) [default: back to back]
            ///
            /// A pass starts on schedule, without waiting for earlier ones; the threads of a load share its rate. Give one
            /// rate for all loads, or one for each. Without it, each thread starts its next pass when the last one has
            /// ended (closed loop).
            #[serde(with = "replimeter_model::plan::OneOrMore::<u64>")]
            only rate "R": Option<Vec<u64>>;

            /// When passes start: constant or poisson [default: constant]
            ///
            /// poisson: as those of many independent users.
            #[arg(requires = "rate")]
            only arrivals "HOW": Option<$crate::load::Arrivals>;

            /// Data of the loads: rows (100000) or bytes (300MB) [default: the workload's]
            ///
            /// Bytes are on disk.
            #[arg(requires = "load")]
            only load_data_size "SIZE": Option<$crate::load::DataSize>;
            [$heading] $($rest)*
        }
    };
    (@$state:tt [$($fields:tt)*] $fill:tt $planned:tt $types:tt $(#[$meta:meta])* file $name:ident: $type:ty; $($rest:tt)*) => {
        $crate::settings! {
            @$state
            [$($fields)* $(#[$meta])* #[arg(skip)] #[serde(skip_serializing_if = "replimeter_model::plan::is_absent")] pub $name: $type,]
            $fill $planned $types $($rest)*
        }
    };
    (@[$heading:ident $given:ident] [$($fields:tt)*] [$($fill:tt)*] $planned:tt $types:tt
        $(#[$meta:meta])* only $name:ident $($value:literal)? $(if ($kept:expr) $(else $needed:literal)?)?: $type:ty = $default:expr $(, $check:expr)*;
        $($rest:tt)*
    ) => {
        $crate::settings! {
            @[$heading $given]
            [$($fields)*
                #[arg(long $(, value_name = $value)?, help_heading = stringify!($heading))]
                $(#[$meta])*
                #[serde(skip_serializing_if = "replimeter_model::plan::is_absent")]
                pub $name: Option<$type>,]
            [$($fill)*
                $($(if !$kept && $given.$name.is_some() {
                    return $crate::plan::requires(stringify!($name), $needed);
                })?)?
                let $name: $type = match Clone::clone(&$given.$name) {
                    Some(value) => value,
                    None => $default,
                };
                $($check(stringify!($name), &$name)?;)*
                $given.$name = Some(Clone::clone(&$name))$(.filter(|_| $kept))?;]
            $planned $types $($rest)*
        }
    };
    (@[$heading:ident $given:ident] [$($fields:tt)*] [$($fill:tt)*] $planned:tt $types:tt
        $(#[$meta:meta])* only $name:ident $($value:literal)? $(if ($kept:expr) else $needed:literal)?: $type:ty $(, $check:expr)*;
        $($rest:tt)*
    ) => {
        $crate::settings! {
            @[$heading $given]
            [$($fields)*
                #[arg(long $(, value_name = $value)?, help_heading = stringify!($heading))]
                $(#[$meta])*
                #[serde(skip_serializing_if = "replimeter_model::plan::is_absent")]
                pub $name: $type,]
            [$($fill)*
                $(if !$kept && !$crate::plan::is_absent(&$given.$name) {
                    return $crate::plan::requires(stringify!($name), $needed);
                })?
                let $name: $type = Clone::clone(&$given.$name);
                $($name.iter().try_for_each(|value| $check(stringify!($name), value))?;)*]
            $planned $types $($rest)*
        }
    };
    (@$state:tt $fields:tt $fill:tt [$($planned:tt)*] $types:tt
        $(#[$meta:meta])* $name:ident $($value:literal)? $(if ($kept:expr) $(else $needed:literal)?)?: $type:ty $(= $default:expr)? $(, $check:expr)*;
        $($rest:tt)*
    ) => {
        $crate::settings! {
            @$state $fields $fill [$($planned)* $name: $type,] $types
            $(#[$meta])* only $name $($value)? $(if ($kept) $(else $needed)?)?: $type $(= $default)? $(, $check)*;
            $($rest)*
        }
    };
    (@$state:tt [$($fields:tt)*] $fill:tt $planned:tt {$(#[$about:meta])* $settings:ident; $($types:tt)*} $($rest:tt)*) => {
        $(#[$about])*
        #[derive(
            Clone, Debug, Default, PartialEq, Eq, clap::Args, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
        )]
        #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
        pub struct $settings { $($fields)* }

        $crate::settings! { $state $fill $planned {$settings $($types)*} $($rest)* }
    };
    ([$heading:ident $given:ident] [$($fill:tt)*] $planned:tt {$settings:ident}) => {
        impl $settings {
            /// Checks each value.
            #[allow(unused_variables, reason = "few settings have a check")]
            pub(super) fn check_values(&self) -> Result<(), $crate::plan::PlanError> {
                let $given = self;
                $($fill)*
                Ok(())
            }
        }
    };
    ([$heading:ident $given:ident] [$($fill:tt)*] [$($name:ident: $type:ty,)*]
        {$settings:ident $(#[$about:meta])* $plan:ident $targets:ident}
        $(plan $($(#[$extra_about:meta])* $extra:ident: $extra_type:ty = $value:expr;)+)?
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $plan {
            $(#[doc = concat!("The setting `", stringify!($name), "`.")] pub $name: $type,)*
            $($($(#[$extra_about])* pub $extra: $extra_type,)+)?
        }

        impl $settings {
            /// Fills in every default, checks each value, and returns the plan.
            #[allow(unused_variables, reason = "a default need not name the settings above it")]
            fn resolve($given: &mut Self, $targets: &[$crate::target::Target]) -> Result<$plan, $crate::plan::PlanError> {
                $($fill)*
                $($(let $extra: $extra_type = $value;)+)?
                Ok($plan { $($name,)* $($($extra,)+)? })
            }
        }
    };
    ($(#[$about:meta])* $settings:ident; $(#[$plan_about:meta])* $plan:ident($given:ident, $targets:ident); $($items:tt)*) => {
        $crate::settings! {
            @[Measurement $given] [] [] [] {$(#[$about])* $settings; $(#[$plan_about])* $plan $targets} $($items)*
        }
    };
    ($(#[$about:meta])* $settings:ident; $($items:tt)*) => {
        $crate::settings! { @[Measurement given] [] [] [] {$(#[$about])* $settings;} $($items)* }
    };
}

/// The settings of a measurement. A setting that is not given is `None`, or empty; a doc comment is the help of an
/// option and the description of a key, in which `{default}` stands for the value that [`Settings::plan`] fills in.
pub trait Settings:
    clap::Args + Serialize + DeserializeOwned + JsonSchema + Clone + Default + PartialEq + fmt::Debug
{
    /// The measurement's name: its command, and its section of a plan file.
    const NAME: &'static str;
    /// The resolved measurement.
    type Plan: Clone + PartialEq + fmt::Debug;

    /// Fills in all defaults, here and in the target, and validates the plan: the result is what `plan.toml` holds.
    ///
    /// # Errors
    /// When settings contradict each other or name what does not exist.
    fn plan(&mut self, target: &mut TargetSettings)
    -> Result<(Vec<Target>, Self::Plan), PlanError>;

    /// Leaves one of the starts that share its rounds, in settings with every default.
    fn leave_one_start(&mut self) {}

    /// Returns the workloads by their names or paths; on the command line, paths are relative to its directory.
    fn workloads(&mut self) -> Vec<&mut String> {
        Vec::new()
    }

    /// Returns the default values.
    #[must_use]
    fn defaults() -> Table {
        let mut settings = Self::default();
        settings
            .plan(&mut TargetSettings::default())
            .ok()
            .and_then(|_| Table::try_from(&settings).ok())
            .unwrap_or_default()
    }
}

/// Returns a default as the command line has it.
#[must_use]
pub fn default_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Boolean(true) => "on".to_owned(),
        Value::Boolean(false) => "off".to_owned(),
        Value::Array(all) => all.iter().map(default_text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// Returns a description with the setting's default in place of `{default}`.
#[must_use]
pub fn with_default(about: &str, key: &str, defaults: &Table) -> String {
    match defaults.get(key) {
        Some(value) => about.replace("{default}", &default_text(value)),
        None => about.to_owned(),
    }
}

/// Returns whether a setting is not given: such settings are not written.
pub fn is_absent<T: Default + PartialEq>(setting: &T) -> bool {
    *setting == T::default()
}

/// Parses `on` and `off`.
pub fn on_off() -> impl TypedValueParser<Value = bool> {
    PossibleValuesParser::new(["on", "off"]).map(|word| word == "on")
}
