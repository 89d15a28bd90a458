//! The programs: what a user may write, and what is hard on a compiler.

/// Programs by kind: a name, declarations, options of the step, the body of a loop over `i`, operations of a turn.
pub struct Kind {
    pub name: &'static str,
    declarations: &'static str,
    options: &'static str,
    body: &'static str,
    operations: usize,
}

pub const KINDS: &[Kind] = &[
    Kind {
        name: "one stream",
        declarations: "stream s  buffer x: f32[4096]",
        options: "",
        body: "on s { map(x * 2 -> x) }",
        operations: 1,
    },
    Kind {
        name: "16 streams, no data",
        declarations: "stream s[16]",
        options: "",
        body: "on s[i % 16] { nop() }",
        operations: 1,
    },
    Kind {
        name: "8 streams, hazards",
        declarations: "stream s[8]  buffer x: f32[7, 4096]",
        options: "",
        body: "on s[i % 8] { map(x[i % 7] * 2 -> x[(i + 1) % 7]) }",
        operations: 1,
    },
    Kind {
        name: "64 streams, hazards",
        declarations: "stream s[64]  buffer x: f32[63, 4096]",
        options: "",
        body: "on s[i % 64] { map(x[i % 63] * 2 -> x[(i + 1) % 63]) }",
        operations: 1,
    },
    Kind {
        name: "512 streams, hazards",
        declarations: "stream s[512]  buffer x: f32[511, 4096]",
        options: "",
        body: "on s[i % 512] { map(x[i % 511] * 2 -> x[(i + 7) % 511]) }",
        operations: 1,
    },
    Kind {
        name: "slices",
        declarations: "stream s[8]  buffer x, y: f32[65536, 64]",
        options: "",
        body: "let a = i * 16 % 65536  on s[i % 8] { map(x[a..a + 16] + 1 -> y[a..a + 16]) }",
        operations: 1,
    },
    Kind {
        name: "halos",
        declarations: "stream s[8]  buffer x[2]: f32[65536, 64]",
        options: "",
        body: "let a = i * 16 % 65504  on s[i % 8] { map(x[i % 2][a..a + 32] + 1 -> x[(i + 1) % 2][a..a + 32]) }",
        operations: 1,
    },
    Kind {
        name: "chunks and a whole",
        declarations: "stream s[4]  buffer x, y: f32[64, 4096]",
        options: "",
        body: "on s[i % 4] { map(y[i % 64] + 1 -> x[i % 64])  map(x + 1 -> y) }",
        operations: 2,
    },
    Kind {
        name: "labels, after",
        declarations: "stream s[16]",
        options: "",
        body: "on s[i % 16] after f[i - 1] when i > 0 { f[i]: nop() }",
        operations: 1,
    },
    Kind {
        name: "scratch",
        declarations: "stream s[8]  buffer x, y: f32[16, 4096]",
        options: "",
        body: "on s[i % 8] { a: map(x[i % 16] * 2)  b: map(a + 1)  map(a + b -> y[i % 16]) }",
        operations: 3,
    },
    Kind {
        name: "scratch across streams",
        declarations: "stream s[8]  buffer x: f32[16, 4096]",
        options: "",
        body: "on s[i % 8] { a: map(x[i % 16] * 2) } on s[(i + 1) % 8] { map(a + 1) }",
        operations: 2,
    },
    Kind {
        name: "bare inputs",
        declarations: "stream s[8]",
        options: "",
        body: "on s[i % 8] { gemm(f32[64, 64], f32[64, 64]) }",
        operations: 1,
    },
    Kind {
        name: "a def in a loop",
        declarations: "stream s[8]  buffer w: f32[64, 64]  buffer x: f32[8, 64, 64]\n\
                       def layer(x, w -> y) { up: gemm(x, w)  act: map(gelu(up))  gemm(act, w -> y) }",
        options: "",
        body: "on s[i % 8] { f: layer(x[i % 8], w -> x[(i + 1) % 8]) }",
        operations: 3,
    },
    Kind {
        name: "forward and back",
        declarations: "stream s[64]  buffer w: f32[64, 64]",
        options: "",
        // Each of the first half is read by one of the second, in reverse: everything is saved until then.
        body: "if i < turns / 2 { on s[i % 64] { if i == 0 { f[i]: map(w) } else { f[i]: gemm(f[i - 1], w) } } } \
               else { on s[(i * 7 + 3) % 64] { map(f[turns - 1 - i] + 1) } }",
        operations: 1,
    },
    Kind {
        name: "order: declared",
        declarations: "stream s[16]  buffer x: f32[16, 4096]",
        options: "(order: declared)",
        body: "on s[i % 16] after f[i - 1] when i > 0 { f[i]: map(x[i % 16] + x[(i + 1) % 16] -> x[i % 16]) }",
        operations: 1,
    },
    Kind {
        name: "sync: end",
        declarations: "stream s[8]  buffer x: f32[7, 4096]",
        options: "(sync: end, depth: 2)",
        body: "on s[i % 8] { map(x[i % 7] * 2 -> x[(i + 1) % 7]) }",
        operations: 1,
    },
    Kind {
        name: "a cycle of 8",
        declarations: "stream s[8]  buffer x: f32[8, 4096]",
        options: "",
        body: "for j in 0..if i % 8 == iteration % 8 { 8 } else { 0 } { on s[j] { map(x[j] * 2 -> x[(j + 1) % 8]) } }",
        operations: 8,
    },
    Kind {
        name: "draws",
        declarations: "stream s[8]  buffer x: f32[8, 4096]  draw n[8] ~ uniform(1, 4096)",
        options: "",
        body: "on s[i % 8] { map(x[i % 8, 0..n[i % 8]] * 2 -> x[i % 8, 0..n[i % 8]]) }",
        // In each of the 64 slots.
        operations: 64,
    },
    Kind {
        name: "draws and a module",
        declarations: "use std.transformer  stream s[8]  buffer x, y: f32[8, 2, 16, 8]  draw n[8] ~ zipf(1.1, 16)",
        options: "",
        body: "on s[i % 8] { f: transformer.attention(x[i % 8], x[n[i % 8] % 8], x[(i + 2) % 8], 0.5 -> y[i % 8]) }",
        operations: 4 * 64,
    },
    Kind {
        name: "one writer, 512 readers",
        declarations: "stream w  stream s[512]  buffer x: f32[4096]  buffer y: f32[512, 4096]",
        options: "",
        body: "on w { map(x * 2 -> x) } for j in 0..512 { on s[j] { map(x + 1 -> y[j]) } }",
        operations: 513,
    },
    Kind {
        name: "a shared weight",
        declarations: "stream s[512]  buffer w: f32[4096]  buffer y: f32[512, 4096]",
        options: "",
        body: "on s[i % 512] { map(w + 1 -> y[i % 512]) }",
        operations: 1,
    },
    Kind {
        name: "sync() on 512 streams",
        declarations: "stream s[512]",
        options: "",
        body: "for j in 0..512 { on s[j] { nop() } } sync()",
        operations: 513,
    },
    Kind {
        name: "sync() each turn",
        declarations: "stream s[512]",
        options: "",
        body: "on s[i % 512] { nop() } sync()",
        operations: 2,
    },
    Kind {
        name: "signal, wait",
        declarations: "stream s[16]",
        options: "",
        body: "on s[i % 16] { e: signal() } on s[(i + 1) % 16] { wait(e) nop() }",
        operations: 3,
    },
    Kind {
        name: "as many buffers",
        declarations: "stream s[8]  buffer x[turns]: f32[16]",
        options: "",
        body: "on s[i % 8] { map(if i == 0 { x[0] } else { x[i - 1] } + 1 -> x[i]) }",
        operations: 1,
    },
    Kind {
        name: "tiles",
        declarations: "stream s[8]  buffer x: f32[1000, 1000, 4, 4]",
        options: "",
        body: "let r = i % 1000  let c = floor_div(i, 1000) % 1000  \
               on s[i % 8] { map(x[r, c, 0..2, 0..2] + 1 -> x[r, c, 2..4, 2..4]) }",
        operations: 1,
    },
];

impl Kind {
    pub fn text(&self, operations: usize) -> String {
        let turns = operations.div_ceil(self.operations);
        format!(
            "let turns = {turns}\n{}\nstep{} {{ for i in 0..turns {{ {} }} }}\n",
            self.declarations, self.options, self.body
        )
    }
}
