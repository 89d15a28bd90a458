//! Kernels that a file declares: random ones compute on the double of AMD's libraries what their references compute on
//! the CPU, and mistakes that only a run can find are reported with the line of the file.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use crate::common::doubles;
use crate::common::draws::Draws;
use crate::common::folder::{Folder, files_below};
use crate::hip::{run_with, verify};

/// A file with kernels in the making, with a source of random choices.
struct File {
    draws: Draws,
    declarations: String,
    statements: [String; 2],
}

impl File {
    /// A kernel of one to three dimensions with a call on one of two streams: `z = a * x + b * y + sizes`, with the sizes
    /// as arguments, so that their order matters.
    fn kernel(&mut self, number: usize) {
        let dtype = self.draws.pick(&["f32", "f64", "bf16", "f16", "i32"]);
        // `map` computes with this type, so that both round alike.
        let wide = if matches!(dtype, "f64" | "i32") { "double" } else { "float" };
        let element = match dtype {
            "f32" => "float",
            "f64" => "double",
            "i32" => "int",
            other => other,
        };
        let names = ["p", "q", "r"];
        let rank = 1 + self.draws.below(3) as usize;
        let sizes: Vec<u64> = (0..rank).map(|_| self.draws.pick(&[1, 3, 7, 16, 33, 65])).collect();
        let block: Vec<u64> = (0..rank).map(|_| self.draws.pick(&[1, 2, 5, 8])).collect();
        // The innermost dimension is x.
        let along = |axis: usize| rank - 1 - axis;
        let grid: Vec<String> =
            (0..rank).map(|axis| format!("ceil_div({}, {})", names[along(axis)], block[axis])).collect();
        let shape = names[..rank].join(", ");
        let mut params: Vec<String> = ["x", "y"].map(|name| format!("const {element}* {name}")).to_vec();
        let (early, late) = (self.draws.below(2) == 0, self.draws.pick(&["f32", "f64", "i32"]));
        params.insert(usize::from(!early), "float a".to_owned());
        params.push(format!(
            "{} b",
            if late == "f32" {
                "float"
            } else if late == "f64" {
                "double"
            } else {
                "int"
            }
        ));
        params.push(format!("{element}* z"));
        params.extend(names[..rank].iter().map(|name| format!("long long {name}")));
        let inputs = if early { "a: f32, x" } else { "x" };
        let between = if early { "" } else { ", a: f32" };
        let mut code = format!("extern \"C\" __global__ void k{number}({}) {{\n", params.join(", "));
        for (axis, dimension) in ["x", "y", "z"].iter().take(rank).enumerate() {
            let name = names[along(axis)];
            let _ = writeln!(
                code,
                "  long long i{axis} = (long long)blockIdx.{dimension} * blockDim.{dimension} + threadIdx.{dimension};\n  \
                 if (i{axis} >= {name}) return;"
            );
        }
        let place = (0..rank).rev().map(|axis| format!("i{axis}")).reduce(|outer, inner| {
            let axis: usize = inner[1..].parse().expect("an axis");
            format!("({outer}) * {} + {inner}", names[along(axis)])
        });
        let last = names[rank - 1];
        let _ = writeln!(
            code,
            "  long long at = {};\n  {wide} sum = ({wide})a * load<{wide}>(x[at]) + ({wide})b * load<{wide}>(y[at]);\n  \
             store(z[at], sum + ({wide})(p - {last}));\n}}",
            place.expect("there is a dimension")
        );
        let _ = writeln!(
            self.declarations,
            "kernel k{number}({inputs}: {dtype}[{shape}]{between}, y: {dtype}[{shape}], b: {late} -> z: {dtype}[{shape}]) {{\n  \
             grid: [{}],\n  block: {block:?},\n  source: \"\"\"\n{code}\"\"\",\n  \
             reference: map(a * x + b * y + (p - {last})),\n}}",
            grid.join(", ")
        );
        let _ = writeln!(self.declarations, "buffer x{number}, y{number}, z{number}: {dtype}{sizes:?}");
        let stream = self.draws.below(2) as usize;
        let (a, b) = (self.draws.pick(&["2", "-0.5", "3"]), self.draws.pick(&["-1", "4"]));
        let call = |x: &str, y: &str, z: &str| match early {
            true => format!("k{number}({a}, {x}, {y}, {b} -> {z})"),
            false => format!("k{number}({x}, {a}, {y}, {b} -> {z})"),
        };
        let (x, y, z) = (format!("x{number}"), format!("y{number}"), format!("z{number}"));
        let first = call(&x, &y, &z);
        let second = call(&z, &x, "_");
        let _ = writeln!(self.statements[stream], "    f{number}: {first}\n    for i in 0..2 {{ {second} }}");
    }

    fn text(&self) -> String {
        let [a, b] = &self.statements;
        let decls = &self.declarations;
        format!("{decls}stream s[2]\nstep {{\n  on s[0] {{\n{a}    nop()\n  }}\n  on s[1] {{\n{b}    nop()\n  }}\n}}\n")
    }
}

#[test]
fn random_kernels_compute_what_their_references_do() {
    let Some(libraries) = doubles::cpu() else { return };
    let folder = Folder::new();
    let long = if crate::common::effort::is_long() { 40 } else { 4 };
    for seed in 0..long {
        let mut file = File { draws: Draws::new(seed), declarations: String::new(), statements: Default::default() };
        (0..6).for_each(|number| file.kernel(number));
        println!("{}", file.text());
        verify(libraries, &folder.write(&format!("{seed}.aorta"), file.text()), &[]);
    }
}

/// A file with one kernel `k` that doubles a buffer. `%HEAD%` in a text stands for its correct head.
fn with_kernel(fields: &str, code: &str) -> String {
    let code = code.replace("%HEAD%", "extern \"C\" __global__ void k(const float* x, float* y, long long n)");
    format!(
        "buffer x, y: f32[300]\n\nkernel k(x: f32[n] -> y: f32[n]) {{\n  grid: ceil_div(n, 64),\n  block: 64,{fields}\n  \
         source: \"\"\"\n{code}\n\"\"\",\n}}\nstep {{ k(x -> y) }}\n"
    )
}

const GOOD: &str = "%HEAD% {\n  long long i = GLOBAL_INDEX;\n  if (i < n) y[i] = 2 * x[i];\n}";

/// Runs the program without a permission for kernels.
fn told(libraries: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_aorta"))
        .args(arguments)
        .env("AORTA_LIBRARY_PATH", libraries)
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .env("XDG_CONFIG_HOME", env!("CARGO_TARGET_TMPDIR"))
        .env("COLUMNS", "1000")
        .output()
        .expect("the program starts");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("it prints text")).concat();
    (output.status.code(), text)
}

#[test]
fn code_runs_on_a_gpu_with_permission_alone() {
    let Some(libraries) = doubles::cpu() else { return };
    let folder = Folder::new();
    let file = folder.write("own.aorta", with_kernel("\n  reference: map(2 * x),", GOOD));
    let run = ["exec", &file, "--effort", "sanity", "--backend"];
    for (arguments, code) in [
        (&["hip"][..], 2),
        (&["hip", "--allow-kernels"], 0),
        (&["hip", "--config", "allow_kernels=true"], 0),
        (&["hip", "--config", "allow_kernels=false"], 2),
        (&["host"], 0),
        (&["sim"], 0),
    ] {
        let (status, text) = told(libraries, &[&run[..], arguments].concat());
        assert_eq!(status, Some(code), "{arguments:?}: {text}");
        assert_eq!(text.contains("declares the kernel"), code == 2, "{arguments:?}: {text}");
        assert!(code != 2 || text.contains("--allow-kernels"), "{arguments:?}: {text}");
    }
    for command in [&["check"][..], &["plan"], &["show"], &["fmt", "--check"]] {
        let (status, text) = told(libraries, &[command, &[&file]].concat());
        assert_eq!(status, Some(0), "{command:?}: {text}");
    }
    for (command, permitted) in
        [(&["sweep", "--launch", "stream,graph"][..], true), (&["sweep", "--launch", "stream,graph"], false)]
    {
        let allow = if permitted { &["--allow-kernels"][..] } else { &[] };
        let cases = ["--backend", "hip", "--effort", "sanity"];
        let (status, text) = told(libraries, &[command, &[&file], &cases, allow].concat());
        assert_eq!(status == Some(0), permitted, "{text}");
    }
    // A suite and both sides of a comparison pass the permission on, or none of their cases runs.
    folder.write("own.suite.ron", "(description: \"own\", cases: [(workload: \"own.aorta\")])");
    for permitted in [true, false] {
        let allow = if permitted { &["--allow-kernels"][..] } else { &[] };
        let ab = ["ab", &file, "--rounds", "6", "--iterations", "2", "--warmup", "1", "--b", "--launch graph"];
        let suite = folder.path("own.suite.ron");
        // The double's times decide whether a permitted run finds that one side is worse. A suite skips the case, and fails
        // since none ran.
        for (arguments, refused) in [(&ab[..], 2), (&["suite", &suite, "--effort", "sanity"], 4)] {
            let (status, text) = told(libraries, &[arguments, &["--backend", "hip"], allow].concat());
            let expected = if permitted { matches!(status, Some(0 | 1)) } else { status == Some(refused) };
            assert!(expected, "{arguments:?} with {status:?}: {text}");
            assert_eq!(text.contains("declares the kernel"), !permitted, "{arguments:?}: {text}");
            assert!(permitted || text.contains("--allow-kernels"), "{arguments:?}: {text}");
        }
    }
    // A scenario cannot permit it.
    let scenario = "(workload: \"own.aorta\", backend: \"hip\", allow_kernels: true)";
    let scenario = folder.write("own.ron", scenario);
    let (status, text) = told(libraries, &["exec", &scenario]);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("allow_kernels"), "{text}");
}

#[test]
fn mistakes_in_the_code_are_told_with_their_line() {
    let Some(libraries) = doubles::cpu() else { return };
    let folder = Folder::new();
    let wrong = [
        // The text begins in line 6 of the file, behind the quotes, so that its second line is line 7.
        ("names", "", "%HEAD% {\n  y[GLOBAL_INDEX] = twice(x[0]);\n}", "names.aorta:8:", "twice"),
        (
            "order",
            "",
            "extern \"C\" __global__ void k(float* y, const float* x, long long n) {}",
            "order.aorta:7:",
            "k",
        ),
        ("shared", "\n  shared: 1MiB,", GOOD, "shared.aorta:6:", "shared memory"),
    ];
    for (name, fields, code, place, said) in wrong {
        let file = folder.write(&format!("{name}.aorta"), with_kernel(fields, code));
        let output = run_with(libraries, &[], &[&file]);
        assert_eq!(output.code, Some(4), "{name}: {}", output.printed);
        for part in [place, said, "kernel `k`"] {
            assert!(output.printed.contains(part), "{name} tells {part}: {}", output.printed);
        }
    }
}

#[test]
fn a_kernel_without_a_reference_is_taken_as_it_is() {
    let Some(libraries) = doubles::cpu() else { return };
    let folder = Folder::new();
    let file = folder.write("own.aorta", with_kernel("", GOOD));
    let output = run_with(libraries, &[], &[&file]);
    assert_eq!(output.code, Some(0), "{}", output.printed);
    assert!(output.printed.contains("not compared: a kernel without a `reference`"), "{}", output.printed);
    let residency =
        "the kernel `k` with 64 threads a block: 32 registers a thread, 0 B of shared memory a block, and 1 block";
    assert!(output.printed.contains(residency), "{}", output.printed);
    let (status, text) = told(libraries, &["exec", &file, "--backend", "host"]);
    assert_eq!(status, Some(4), "{text}");
    assert!(text.contains("the kernel `k` has no `reference`"), "{text}");
    // A wrong one is found.
    let file = folder.write("wrong.aorta", with_kernel("\n  reference: map(3 * x),", GOOD));
    let output = run_with(libraries, &[], &[&file]);
    assert_eq!(output.code, Some(1), "{}", output.printed);
}

#[test]
fn code_in_a_file_lies_beside_the_workload() {
    let Some(libraries) = doubles::cpu() else { return };
    let folder = Folder::new();
    let code = GOOD.replace("%HEAD%", "extern \"C\" __global__ void twice(const float* x, float* y, long long n)");
    folder.write("inside/k.cu", &code);
    folder.write("k.cu", &code);
    folder.write("inside/k.hsaco", "no code");
    let text = |file: &str| {
        format!(
            "buffer x, y: f32[300]\nkernel k(x: f32[n] -> y: f32[n]) {{\n  grid: ceil_div(n, 64),\n  block: 64,\n  \
             file: \"{file}\",\n  entry: \"twice\",\n  reference: map(2 * x),\n}}\nstep {{ k(x -> y) }}\n"
        )
    };
    verify(libraries, &folder.write("inside/good.aorta", text("k.cu")), &[]);
    for (file, said) in [
        ("../k.cu", "it is outside of the workload's folder"),
        ("none.cu", "there is no such file"),
        ("k.txt", "its name ends in `.cu`"),
    ] {
        let (status, told) = told(libraries, &["check", &folder.write("inside/wrong.aorta", text(file))]);
        assert_eq!(status, Some(2), "{told}");
        assert!(told.contains(said), "{file}: {told}");
    }
    let compiled = folder.write("inside/compiled.aorta", text("k.hsaco"));
    let output = run_with(libraries, &[], &[&compiled]);
    assert_eq!(output.code, Some(4), "{}", output.printed);
    assert!(output.printed.contains("the kernel `k` cannot be launched"), "{}", output.printed);
}

/// The code that the double's compiler makes of a kernel `twice`, from the cache of a run.
fn compiled(libraries: &Path, folder: &Folder) -> Vec<u8> {
    let code = GOOD.replace("%HEAD%", "extern \"C\" __global__ void twice(const float* x, float* y, long long n)");
    let text = with_kernel("\n  entry: \"twice\",", &code);
    let cache = folder.path("cache");
    let output = run_with(libraries, &[("XDG_CACHE_HOME", &cache)], &[&folder.write("source.aorta", text)]);
    assert_eq!(output.code, Some(0), "{}", output.printed);
    for path in files_below(Path::new(&cache), |_| true) {
        let bytes = std::fs::read(path).expect("a file");
        // The code begins with this mark, behind what the cache writes before it.
        let begin = bytes.windows(8).position(|part| part == b"hipdbl01");
        let name = b"hip_double_entry_twice";
        if let Some(begin) = begin.filter(|_| bytes.windows(name.len()).any(|part| part == name)) {
            return bytes[begin..].to_vec();
        }
    }
    panic!("the cache has no code of the kernel")
}

/// The metadata that Triton writes beside its code, for a block of one wave.
const METADATA: &str = r#"{"hash": "0", "name": "twice", "num_warps": 1, "num_ctas": 1, "num_stages": 2, "shared": 0,
    "target": {"backend": "hip", "arch": "gfx942", "warp_size": 64}, "global_scratch_size": 0, "profile_scratch_size": 0}"#;

#[test]
fn compiled_code_runs_beside_ours() {
    let Some(libraries) = doubles::cpu() else { return };
    let folder = Folder::new();
    let code = compiled(libraries, &folder);
    folder.write("k.hsaco", &code);
    folder.write("entry.hsaco", &code);
    folder.write("entry.json", METADATA);
    let text = |fields: &str| {
        format!(
            "param n = 301 in 1..=301\nbuffer x, y, z: f32[n]\nkernel k(x: f32[n] -> y: f32[n]) {{\n  \
             grid: ceil_div(n, 64),\n  {fields}\n  reference: map(2 * x),\n}}\n\
             step {{ k(x -> y)  sum(y)  k(y -> z)  map(z + 1 -> x) }}\n"
        )
    };
    for (name, fields) in [
        ("code", "block: 64, file: \"k.hsaco\", entry: \"twice\","),
        ("ordered", "block: 64, file: \"k.hsaco\", entry: \"twice\", args: [x, y, n + 0],"),
        ("triton", "file: \"entry.json\","),
        ("triton_ordered", "file: \"entry.json\", args: [x, y, n],"),
    ] {
        let file = folder.write(&format!("{name}.aorta"), text(fields));
        verify(libraries, &file, &[]);
        verify(libraries, &file, &["--set", "n=1"]);
    }
    let wrong = |name: &str, fields: &str, metadata: &str, said: &[&str]| {
        folder.write("wrong.json", metadata);
        folder.write("wrong.hsaco", &code);
        let file = folder.write(&format!("{name}.aorta"), text(fields));
        let (status, told) = told(libraries, &["check", &file]);
        assert_eq!(status, Some(2), "{name}: {told}");
        said.iter().for_each(|part| assert!(told.contains(part), "{name}, {part}: {told}"));
    };
    folder.write("alone.json", METADATA);
    wrong("alone", "file: \"alone.json\",", METADATA, &["no `.cubin`, `.ptx` or `.hsaco` of that name"]);
    wrong(
        "clusters",
        "file: \"wrong.json\",",
        &METADATA.replace("\"num_ctas\": 1", "\"num_ctas\": 2"),
        &["clusters of 2 blocks"],
    );
    wrong("other", "file: \"wrong.json\",", "{}", &["no metadata of Triton"]);
    wrong("block", "file: \"wrong.json\", block: 64,", METADATA, &["the metadata says 64 threads", "remove the field"]);
    wrong(
        "missing",
        "block: 64, file: \"k.hsaco\", args: [x, n],",
        METADATA,
        &["`y` of the kernel `k` is not in `args`"],
    );
    wrong("fraction", "block: 64, file: \"k.hsaco\", args: [x, y, 0.5],", METADATA, &["whole"]);
    // Code for another device is refused with its name.
    folder.write("foreign.hsaco", "\u{7f}ELF");
    folder.write("foreign.json", METADATA.replace("\"hip\", \"arch\": \"gfx942\"", "\"cuda\", \"arch\": 90"));
    let file = folder.write("foreign.aorta", text("file: \"foreign.json\","));
    let output = run_with(libraries, &[], &[&file]);
    assert_eq!(output.code, Some(4), "{}", output.printed);
    assert!(output.printed.contains("Triton has compiled it for `cuda 90`"), "{}", output.printed);
}

/// The order of `args` is that of the entry's parameters, which the compiler checks.
#[test]
fn arguments_have_the_order_of_the_entry() {
    let Some(libraries) = doubles::cpu() else { return };
    let folder = Folder::new();
    let code = "extern \"C\" __global__ void k(float* y, long long rows, float a, long long all, const float* x) {\n  \
                long long i = GLOBAL_INDEX;\n  if (i < all) y[i] = a * x[i] + rows;\n}";
    let text = |args: &str| {
        format!(
            "buffer x: f32[7, 43]\nkernel k(x: f32[n, m], a: f32 -> y: f32[n, m]) {{\n  grid: ceil_div(n * m, 64),\n  \
             block: 64,\n  args: {args},\n  source: \"\"\"\n{code}\n\"\"\",\n  reference: map(a * x + n),\n}}\n\
             step {{ k(x, 3) }}\n"
        )
    };
    verify(libraries, &folder.write("good.aorta", text("[y, n, a, n * m, x]")), &[]);
    let output = run_with(libraries, &[], &[&folder.write("wrong.aorta", text("[y, a, n, n * m, x]"))]);
    assert_eq!(output.code, Some(4), "{}", output.printed);
}

/// An output with the name of an input is that input, and its entry has one parameter for both.
#[test]
fn an_output_can_update_an_input() {
    let Some(libraries) = doubles::cpu() else { return };
    let folder = Folder::new();
    let code = "extern \"C\" __global__ void k(const float* x, float a, float* y, float* z, long long n) {\n  \
                long long i = GLOBAL_INDEX;\n  if (i >= n) return;\n  z[i] = y[i] - x[i];\n  y[i] = a * x[i] + y[i];\n}";
    let text = |call: &str| {
        format!(
            "buffer x, u, v: f32[301]\nbuffer w: f32[3, 301]\nkernel k(x: f32[n], a: f32, y: f32[n] -> y: f32[n], z: f32[n]) {{\n  \
             grid: ceil_div(n, 64),\n  block: 64,\n  source: \"\"\"\n{code}\n\"\"\",\n  reference: map(a * x + y, y - x),\n}}\n\
             step {{ {call} }}\n"
        )
    };
    let good = "k(x, 0.5, u -> u, v)  k(x, 2, w[1] -> w[1])  for i in 0..2 { k(v, i, u -> u, w[2 * i]) }";
    verify(libraries, &folder.write("good.aorta", text(good)), &[]);
    for (call, said) in [
        ("k(x, 1, u)", "is the input of that name"),
        ("k(x, 1, u -> v)", "is the input of that name"),
        ("k(x, 1, w[0] -> w[1])", "is the input of that name"),
        ("k(u, 1, u -> u)", "overlap"),
        ("k(x, 1, u -> u, x)", "overlap"),
        ("k(x, 1, u -> u, u)", "overlap"),
    ] {
        let (status, told) = told(libraries, &["check", &folder.write("wrong.aorta", text(call))]);
        assert_eq!(status, Some(2), "{call}: {told}");
        assert!(told.contains(said), "{call}: {told}");
    }
}
