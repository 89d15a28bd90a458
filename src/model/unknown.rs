//! What is said of a name that nothing declares.

use crate::base::{DType, suggest};

/// What element types are called elsewhere.
const TYPES: [(&[&str], DType); 7] = [
    (&["double", "float64", "fp64"], DType::F64),
    (&["float", "float32", "fp32", "single"], DType::F32),
    (&["half", "float16", "fp16"], DType::F16),
    (&["bfloat16", "bfloat", "nv_bfloat16"], DType::BF16),
    (&["int", "int32", "int32_t"], DType::I32),
    (&["int8", "int8_t", "char"], DType::I8),
    (&["uint8", "uint8_t", "byte"], DType::U8),
];

/// Element types of other tools that are none here.
const OTHERS: [&str; 18] = [
    "i64", "i16", "u64", "u32", "u16", "int64", "int16", "uint", "uint64", "uint32", "uint16", "long", "short", "fp8",
    "f8", "fp4", "tf32", "size_t",
];

/// What a figure begins with that is of the machine: `device.units`.
const DEVICE: &str = "device";

/// What a name at a place could be declared as.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Place {
    #[default]
    Any,
    /// It is read or written by an operation.
    Operand,
    /// It is waited for.
    Label,
    /// It is waited for, and has an index.
    LabelFamily,
    /// Operations run on it.
    Stream,
    /// A collective runs over it. `true`: the file has a mesh, and this is none of its names.
    Group { mesh: bool },
}

/// What to write in place of a name, of which `known` are near.
pub(super) fn help<'a>(name: &str, place: Place, known: impl IntoIterator<Item = &'a str>) -> String {
    if let Some((_, dtype)) = TYPES.iter().find(|(names, _)| names.contains(&name)) {
        return format!("that element type is `{dtype}` here");
    }
    if OTHERS.contains(&name) {
        let all = DType::ALL.map(|dtype| dtype.name());
        return format!("the element types are {}", suggest::listed(&all));
    }
    if let Some(near) = suggest::nearest(name, known) {
        return format!("did you mean `{near}`?");
    }
    match place {
        Place::Any if name == DEVICE => {
            "a program is the same on every machine: what the device has is known in `metric` and `expect` alone"
                .to_owned()
        }
        Place::Any => format!("declare it above: `param {name} = 4`, `stream {name}` or `buffer {name}: f32[4]`"),
        Place::Operand => format!("declare it above: `buffer {name}: f32[4]`"),
        Place::Label => format!("give an operation above that label: `{name}: nop()`"),
        Place::LabelFamily => format!("give an operation above that label: `{name}[i]: nop()`"),
        Place::Stream => format!("declare it above: `stream {name}`"),
        Place::Group { mesh: false } => {
            format!("declare the group above: `mesh {name} = world`; a collective without `over` runs over all ranks")
        }
        Place::Group { mesh: true } => {
            format!(
                "make it a factor of the mesh, such as `mesh dp = world / 4, {name} = 4`; `over world` is all ranks"
            )
        }
    }
}
