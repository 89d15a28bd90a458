//! Enums whose values have names.

/// Defines an enum with the name of each value beside it, a list of all values, and the search by name.
macro_rules! named {
    (
        $(#[$about:meta])*
        pub enum $name:ident {
            $($(#[$detail:meta])* $value:ident = $text:literal,)+
        }
    ) => {
        $(#[$about])*
        pub enum $name {
            $($(#[$detail])* $value,)+
        }

        impl $name {
            /// Every value, in the order of the definition.
            pub const ALL: [$name; [$($text),+].len()] = [$($name::$value),+];

            /// The names, in the same order.
            pub const NAMES: [&'static str; Self::ALL.len()] = [$($text),+];

            /// The name in files, options, records and reports.
            pub fn name(self) -> &'static str {
                Self::NAMES[self as usize]
            }

            /// The value with this name; `None` if there is none.
            pub fn from_name(name: &str) -> Option<$name> {
                Self::ALL.into_iter().find(|value| value.name() == name)
            }
        }
    };
}

pub(crate) use named;
