//! Prints the text that an input stands for: `cargo run --example text -- FILE`, in `fuzz`.

fn main() {
    for file in std::env::args().skip(1) {
        print!("{}", aorta_fuzz::targets::workload(&std::fs::read(file).expect("a readable file")));
    }
}
