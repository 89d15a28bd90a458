//! hipBLASLt: descriptions of matrix products, and the products.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use crate::blas::{Function, Matrix, Product};
use crate::device;
use crate::element::Element;
use crate::handles::Handles;
use crate::stream::{STREAMS, Task};

type Handle = *mut c_void;

/// `hipblasStatus_t`.
const SUCCESS: c_int = 0;
const INVALID_VALUE: c_int = 3;
const EXECUTION_FAILED: c_int = 5;
const NOT_SUPPORTED: c_int = 7;

/// `hipblasOperation_t` and `hipblasComputeType_t`.
const TRANSPOSED: c_int = 112;
const COMPUTE_32F: c_int = 2;
const COMPUTE_FAST_TF32: c_int = 6;
const COMPUTE_64F: c_int = 7;
const COMPUTE_32I: c_int = 9;

#[derive(Clone, Copy)]
struct Layout {
    element: Element,
    rows: u64,
    columns: u64,
    leading: i64,
    batch: i32,
    stride: i64,
}

#[derive(Clone, Copy)]
struct Desc {
    compute: c_int,
    transposed: [bool; 2],
    /// `hipblasLtEpilogue_t`, with the address and the `hipDataType` of the bias.
    epilogue: c_int,
    bias: usize,
    bias_type: c_int,
    /// Addresses of factors of both operands, and whether each row and column has one.
    scales: [usize; 2],
    each: [bool; 2],
}

/// `HIPBLASLT_EPILOGUE_DEFAULT`, `_RELU`, `_BIAS` and `_GELU`, of which the last three are bits.
const EPILOGUE_DEFAULT: c_int = 1;
const EPILOGUE_RELU: c_int = 2;
const EPILOGUE_BIAS: c_int = 4;
const EPILOGUE_GELU: c_int = 32;

static LIBRARIES: Handles<()> = Handles::new();
static LAYOUTS: Handles<Mutex<Layout>> = Handles::new();
static DESCS: Handles<Mutex<Desc>> = Handles::new();
static PREFERENCES: Handles<()> = Handles::new();

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Algorithm {
    data: [u8; 16],
    most_workspace: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Proposal {
    algorithm: Algorithm,
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

/// Marks algorithms of this library, so that another's is refused.
const OURS: &[u8; 8] = b"hipdbl01";

fn number(done: Result<(), c_int>) -> c_int {
    done.err().unwrap_or(SUCCESS)
}

fn locked<T: Copy>(handles: &Handles<Mutex<T>>, handle: Handle) -> Result<T, c_int> {
    let found = handles.get(handle).map_err(|_| INVALID_VALUE)?;
    Ok(*found.lock().unwrap_or_else(PoisonError::into_inner))
}

/// # Safety
/// There are `size` bytes at the address.
unsafe fn value<T: Copy>(from: *const c_void, size: usize) -> Result<T, c_int> {
    if from.is_null() || size != size_of::<T>() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller vouches for the size, which is that of the type.
    Ok(unsafe { from.cast::<T>().read_unaligned() })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipblasLtCreate(to: *mut Handle) -> c_int {
    crate::api::counted!(hipblasLtCreate);
    // SAFETY: the output pointer is valid for the call.
    unsafe { to.write(LIBRARIES.add(Arc::new(()))) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn hipblasLtDestroy(library: Handle) -> c_int {
    crate::api::counted!(hipblasLtDestroy);
    number(LIBRARIES.remove(library).map(|_| ()).map_err(|_| INVALID_VALUE))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipblasLtGetVersion(library: Handle, version: *mut c_int) -> c_int {
    crate::api::counted!(hipblasLtGetVersion);
    // SAFETY: the output pointer is valid for the call.
    unsafe { version.write(100_202) };
    number(LIBRARIES.get(library).map(|_| ()).map_err(|_| INVALID_VALUE))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipblasLtMatrixLayoutCreate(
    to: *mut Handle,
    element: c_int,
    rows: u64,
    columns: u64,
    leading: i64,
) -> c_int {
    crate::api::counted!(hipblasLtMatrixLayoutCreate);
    let Some(element) = Element::of_product(element) else { return NOT_SUPPORTED };
    let layout = Layout { element, rows, columns, leading, batch: 1, stride: 0 };
    // SAFETY: the output pointer is valid for the call.
    unsafe { to.write(LAYOUTS.add(Arc::new(Mutex::new(layout)))) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn hipblasLtMatrixLayoutDestroy(layout: Handle) -> c_int {
    crate::api::counted!(hipblasLtMatrixLayoutDestroy);
    number(LAYOUTS.remove(layout).map(|_| ()).map_err(|_| INVALID_VALUE))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipblasLtMatrixLayoutSetAttribute(
    layout: Handle,
    attribute: c_int,
    from: *const c_void,
    size: usize,
) -> c_int {
    crate::api::counted!(hipblasLtMatrixLayoutSetAttribute);
    let Ok(layout) = LAYOUTS.get(layout) else { return INVALID_VALUE };
    let mut layout = layout.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: there are as many bytes as are told.
    let set = unsafe {
        match attribute {
            0 => value(from, size).map(|batch| layout.batch = batch),
            1 => value(from, size).map(|stride| layout.stride = stride),
            _ => Err(NOT_SUPPORTED),
        }
    };
    number(set)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipblasLtMatmulDescCreate(to: *mut Handle, compute: c_int, scale: c_int) -> c_int {
    crate::api::counted!(hipblasLtMatmulDescCreate);
    let wanted = match compute {
        COMPUTE_32F | COMPUTE_FAST_TF32 => 0,
        COMPUTE_64F => 1,
        // `HIP_R_32I`.
        COMPUTE_32I => 10,
        _ => return NOT_SUPPORTED,
    };
    if scale != wanted {
        return NOT_SUPPORTED;
    }
    let desc = Desc {
        compute,
        transposed: [false; 2],
        epilogue: EPILOGUE_DEFAULT,
        bias: 0,
        bias_type: 0,
        scales: [0; 2],
        each: [false; 2],
    };
    // SAFETY: the output pointer is valid for the call.
    unsafe { to.write(DESCS.add(Arc::new(Mutex::new(desc)))) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn hipblasLtMatmulDescDestroy(desc: Handle) -> c_int {
    crate::api::counted!(hipblasLtMatmulDescDestroy);
    number(DESCS.remove(desc).map(|_| ()).map_err(|_| INVALID_VALUE))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipblasLtMatmulDescSetAttribute(
    desc: Handle,
    attribute: c_int,
    from: *const c_void,
    size: usize,
) -> c_int {
    crate::api::counted!(hipblasLtMatmulDescSetAttribute);
    let Ok(desc) = DESCS.get(desc) else { return INVALID_VALUE };
    let mut desc = desc.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: there are as many bytes as are told.
    let (operation, pointer): (Result<c_int, c_int>, Result<usize, c_int>) =
        unsafe { (value(from, size), value(from, size)) };
    match (attribute, operation) {
        (2, Ok(epilogue)) => {
            desc.epilogue = epilogue;
            SUCCESS
        }
        (3, _) => number(pointer.map(|pointer| desc.bias = pointer)),
        (5 | 6, _) => number(pointer.map(|pointer| desc.scales[attribute as usize - 5] = pointer)),
        (31 | 32, Ok(mode @ (0 | 3))) => {
            desc.each[attribute as usize - 31] = mode == 3;
            SUCCESS
        }
        (4, Ok(element)) => {
            desc.bias_type = element;
            SUCCESS
        }
        (0 | 1, Ok(operation @ 111..=TRANSPOSED)) => {
            desc.transposed[attribute as usize] = operation == TRANSPOSED;
            SUCCESS
        }
        (0 | 1 | 2 | 4, _) => INVALID_VALUE,
        _ => NOT_SUPPORTED,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipblasLtMatmulPreferenceCreate(to: *mut Handle) -> c_int {
    crate::api::counted!(hipblasLtMatmulPreferenceCreate);
    // SAFETY: the output pointer is valid for the call.
    unsafe { to.write(PREFERENCES.add(Arc::new(()))) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn hipblasLtMatmulPreferenceDestroy(preference: Handle) -> c_int {
    crate::api::counted!(hipblasLtMatmulPreferenceDestroy);
    number(PREFERENCES.remove(preference).map(|_| ()).map_err(|_| INVALID_VALUE))
}

#[unsafe(no_mangle)]
pub extern "C" fn hipblasLtMatmulPreferenceSetAttribute(
    preference: Handle,
    attribute: c_int,
    from: *const c_void,
    size: usize,
) -> c_int {
    crate::api::counted!(hipblasLtMatmulPreferenceSetAttribute);
    // The workspace's size, of which none is used.
    let known = attribute == 1 && size == 8 && !from.is_null() && PREFERENCES.get(preference).is_ok();
    if known { SUCCESS } else { INVALID_VALUE }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipblasLtMatmulAlgoGetHeuristic(
    library: Handle,
    desc: Handle,
    a: Handle,
    b: Handle,
    c: Handle,
    d: Handle,
    preference: Handle,
    wanted: c_int,
    proposals: *mut Proposal,
    found: *mut c_int,
) -> c_int {
    crate::api::counted!(hipblasLtMatmulAlgoGetHeuristic);
    if LIBRARIES.get(library).is_err() || PREFERENCES.get(preference).is_err() || wanted < 1 {
        return INVALID_VALUE;
    }
    if let Err(code) = described(desc, [a, b, c, d]) {
        return code;
    }
    // Two that do the same, so that there is a choice.
    let count = wanted.min(2);
    for number in 0..count {
        let mut data = [0; 16];
        data[..8].copy_from_slice(OURS);
        data[8] = number as u8;
        let algorithm = Algorithm { data, most_workspace: 0 };
        let proposal = Proposal { algorithm, workspace: 0, state: SUCCESS, waves: 1.0, reserved: [0; 4] };
        // SAFETY: there is room for as many as are wanted.
        unsafe { proposals.add(number as usize).write(proposal) };
    }
    // SAFETY: the output pointer is valid for the call.
    unsafe { found.write(count) };
    SUCCESS
}

/// The product that the descriptions say, without its operands' addresses.
fn described(desc: Handle, layouts: [Handle; 4]) -> Result<Product, c_int> {
    let desc = locked(&DESCS, desc)?;
    let mut all = Vec::with_capacity(4);
    for handle in layouts {
        all.push(locked(&LAYOUTS, handle)?);
    }
    let [a, b, c, d] = [all[0], all[1], all[2], all[3]];
    let inner = |layout: Layout, transposed: bool| match transposed {
        true => (layout.columns, layout.rows),
        false => (layout.rows, layout.columns),
    };
    let ((m, k), (inner_b, n)) = (inner(a, desc.transposed[0]), inner(b, desc.transposed[1]));
    let fits = inner_b == k && [c, d].iter().all(|layout| (layout.rows, layout.columns) == (m, n));
    let wide = all.iter().all(|layout| layout.leading >= layout.rows as i64 && layout.batch == a.batch);
    if !fits || !wide {
        return Err(INVALID_VALUE);
    }
    // Double precision has all digits of whole numbers.
    let double = matches!(desc.compute, COMPUTE_64F | COMPUTE_32I);
    let supported = match (a.element, b.element, d.element) {
        (Element::F64, Element::F64, Element::F64) => desc.compute == COMPUTE_64F,
        (Element::I8, Element::I8, Element::I32) => {
            desc.compute == COMPUTE_32I && desc.transposed == [true, false] && k % 4 == 0
        }
        (Element::F32, Element::F32, Element::F32) => !double,
        // As on NVIDIA's Hopper: columns of both operands along the depth, in pieces of 16 bytes.
        (x, y, z) if x.is_float8() && y.is_float8() => {
            let form = desc.transposed == [true, false] && k % 16 == 0 && (x, y) != (Element::E5M2, Element::E5M2);
            form && !double && matches!(z, Element::F16 | Element::BF16 | Element::F32)
        }
        (x, y, z) => !double && x == y && matches!(x, Element::F16 | Element::BF16) && (z == x || z == Element::F32),
    };
    if desc.scales != [0; 2] && !a.element.is_float8() || desc.each[0] != desc.each[1] {
        return Err(NOT_SUPPORTED);
    }
    if !supported || c.element != d.element {
        return Err(NOT_SUPPORTED);
    }
    let epilogue = match desc.epilogue {
        EPILOGUE_DEFAULT => 0,
        epilogue if epilogue & !(EPILOGUE_RELU | EPILOGUE_BIAS | EPILOGUE_GELU) == 0 => epilogue,
        _ => return Err(INVALID_VALUE),
    };
    if epilogue & EPILOGUE_BIAS != 0 && Element::of_product(desc.bias_type) != Some(d.element) {
        return Err(NOT_SUPPORTED);
    }
    let function = match epilogue & !EPILOGUE_BIAS {
        0 => Function::Identity,
        EPILOGUE_RELU => Function::Relu,
        EPILOGUE_GELU => Function::Gelu,
        _ => return Err(INVALID_VALUE),
    };
    // A library has no algorithm with an epilogue for each product: here not for an odd depth.
    if epilogue != 0 && k % 2 == 1 {
        return Err(NOT_SUPPORTED);
    }
    let matrix = |layout: Layout, transposed| Matrix {
        address: 0,
        element: layout.element,
        leading: layout.leading as usize,
        stride: layout.stride,
        transposed,
    };
    Ok(Product {
        m: m as usize,
        n: n as usize,
        k: k as usize,
        batch: a.batch.max(1) as usize,
        alpha: 1.0,
        beta: 0.0,
        a: matrix(a, desc.transposed[0]),
        b: matrix(b, desc.transposed[1]),
        c: matrix(c, false),
        d: matrix(d, false),
        double,
        bias: if epilogue & EPILOGUE_BIAS != 0 { desc.bias } else { 0 },
        scales: desc.scales,
        each: desc.each[0],
        function,
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipblasLtMatmul(
    library: Handle,
    desc: Handle,
    alpha: *const c_void,
    a: *const c_void,
    a_layout: Handle,
    b: *const c_void,
    b_layout: Handle,
    beta: *const c_void,
    c: *const c_void,
    c_layout: Handle,
    d: *mut c_void,
    d_layout: Handle,
    algorithm: *const Algorithm,
    _workspace: *mut c_void,
    _workspace_bytes: usize,
    stream: Handle,
) -> c_int {
    crate::api::counted!(hipblasLtMatmul);
    // SAFETY: an algorithm is one that a heuristic gave, or there is none.
    let foreign = unsafe { algorithm.as_ref() }.is_some_and(|algorithm| !algorithm.data.starts_with(OURS));
    if LIBRARIES.get(library).is_err() || foreign {
        return INVALID_VALUE;
    }
    let mut product = match described(desc, [a_layout, b_layout, c_layout, d_layout]) {
        Ok(product) => product,
        Err(code) => return code,
    };
    let whole = product.d.element == Element::I32;
    let scalar = |from: *const c_void| match product.double {
        // SAFETY: scalars are of the type that the description says.
        true if whole => f64::from(unsafe { from.cast::<i32>().read_unaligned() }),
        // SAFETY: scalars are of the type that the description says.
        true => unsafe { from.cast::<f64>().read_unaligned() },
        // SAFETY: as above.
        false => f64::from(unsafe { from.cast::<f32>().read_unaligned() }),
    };
    (product.alpha, product.beta) = (scalar(alpha), scalar(beta));
    product.a.address = a as usize;
    product.b.address = b as usize;
    product.c.address = c as usize;
    product.d.address = d as usize;
    let Ok(stream) = STREAMS.get(stream) else { return INVALID_VALUE };
    let task = Task::new(move || {
        // SAFETY: whoever issued the product vouched for its operands.
        unsafe { product.run() };
        Ok(())
    });
    let usable = device::get(stream.device).and_then(|device| device.check());
    if usable.and_then(|()| stream.issue(task)).is_ok() { SUCCESS } else { EXECUTION_FAILED }
}
