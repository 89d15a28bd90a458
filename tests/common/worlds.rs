//! Random programs of one or several ranks, as text: kernels of all sizes, copies over every link, collectives,
//! transfers, and iterations that differ. They are only simulated, so the CPU need not compute them.

use proptest::prelude::*;

/// A random program and its number of ranks.
#[derive(Clone, Debug)]
pub struct World {
    pub ranks: u32,
    streams: usize,
    priorities: bool,
    /// Rows and columns of the three families of buffers.
    shapes: [(u64, u64); 3],
    half: bool,
    statements: Vec<Statement>,
    /// Options of `step`.
    options: &'static str,
}

/// One statement: where it runs, when, and what it does.
#[derive(Clone, Debug)]
struct Statement {
    stream: usize,
    family: usize,
    /// Indices in the family's buffers.
    from: usize,
    to: usize,
    condition: Condition,
    work: Work,
}

#[derive(Clone, Copy, Debug)]
enum Condition {
    Always,
    /// In iterations whose number has this remainder.
    Turn {
        of: u64,
        is: u64,
    },
    /// On every other rank; only for operations of a single rank.
    EvenRank,
}

#[derive(Clone, Copy, Debug)]
enum Work {
    Map,
    Softmax,
    Gelu,
    Gemm {
        m: u64,
        n: u64,
        k: u64,
    },
    Transpose,
    Gather,
    Spin {
        microseconds: u64,
        units: u64,
    },
    Fill,
    Memset,
    CopyOnDevice,
    /// To or from pinned memory, by an engine or a kernel.
    CopyToDevice {
        kernel: bool,
    },
    CopyToHost {
        kernel: bool,
    },
    ReadPinned,
    WritePinned,
    GatherPinned,
    AllReduce,
    AllGather,
    ReduceScatter,
    AllToAll,
    Broadcast,
    Barrier,
    /// All send to the next rank and receive from the previous one.
    Exchange,
    /// Rank 0 sends to the last rank.
    SendOne,
    CopyToPeer {
        kernel: bool,
    },
}

impl Work {
    /// True if every rank has to take part.
    fn together(self) -> bool {
        use Work::*;
        matches!(
            self,
            AllReduce
                | AllGather
                | ReduceScatter
                | AllToAll
                | Broadcast
                | Barrier
                | Exchange
                | SendOne
                | CopyToPeer { .. }
        )
    }
}

impl Statement {
    /// True if every rank executes it.
    fn everywhere(&self) -> bool {
        // Only two ranks take part in a single send.
        match self.work {
            Work::SendOne => false,
            work => work.together() || !matches!(self.condition, Condition::EvenRank),
        }
    }
}

fn work(ranks: u32) -> impl Strategy<Value = Work> {
    let size = || (0u32..13).prop_flat_map(|power| (1u64 << power)..=(2 << power));
    let alone = prop_oneof![
        4 => Just(Work::Map),
        1 => Just(Work::Softmax),
        1 => Just(Work::Gelu),
        4 => (size(), size(), size()).prop_map(|(m, n, k)| Work::Gemm { m, n, k }),
        1 => Just(Work::Transpose),
        1 => Just(Work::Gather),
        1 => (1u64..60, 1u64..400).prop_map(|(microseconds, units)| Work::Spin { microseconds, units }),
        1 => Just(Work::Fill),
        1 => Just(Work::Memset),
        1 => Just(Work::CopyOnDevice),
        2 => any::<bool>().prop_map(|kernel| Work::CopyToDevice { kernel }),
        2 => any::<bool>().prop_map(|kernel| Work::CopyToHost { kernel }),
        1 => Just(Work::ReadPinned),
        1 => Just(Work::WritePinned),
        1 => Just(Work::GatherPinned),
    ];
    let together = prop_oneof![
        3 => Just(Work::AllReduce),
        2 => Just(Work::AllGather),
        1 => Just(Work::ReduceScatter),
        1 => Just(Work::AllToAll),
        1 => Just(Work::Broadcast),
        1 => Just(Work::Barrier),
        2 => Just(Work::Exchange),
        1 => Just(Work::SendOne),
        2 => any::<bool>().prop_map(|kernel| Work::CopyToPeer { kernel }),
    ];
    prop_oneof![3 => alone, u32::from(ranks > 1) * 2 => together]
}

fn statement(streams: usize, ranks: u32, cycles: bool) -> impl Strategy<Value = Statement> {
    let turn = (2u64..5).prop_flat_map(|of| (0..of).prop_map(move |is| Condition::Turn { of, is }));
    let condition = prop_oneof![
        6 => Just(Condition::Always),
        u32::from(cycles) * 3 => turn,
        u32::from(ranks > 1) => Just(Condition::EvenRank),
    ];
    (0..streams, 0..3usize, 0..3usize, 1..3usize, condition, work(ranks)).prop_map(
        |(stream, family, from, behind, condition, work)| {
            let to = (from + behind) % 3;
            Statement { stream, family, from, to, condition, work }
        },
    )
}

/// Programs on at most `most_ranks` ranks.
pub fn world(most_ranks: u32) -> impl Strategy<Value = World> {
    let ranks = prop_oneof![2 => Just(1), 3 => 1..=most_ranks];
    let options = prop_oneof![5 => Just(""), 1 => Just("(sync: end)"), 1 => Just("(sync: end, depth: 2)")];
    let side = || (0u32..12).prop_flat_map(|power| (1u64 << power)..=(2 << power));
    let shapes = [(side(), side()), (side(), side()), (side(), side())];
    (ranks, 1..7usize, any::<bool>(), shapes, any::<bool>(), options, any::<bool>()).prop_flat_map(
        |(ranks, streams, priorities, shapes, half, options, cycles)| {
            prop::collection::vec(statement(streams, ranks, cycles), 1..24).prop_map(move |statements| World {
                ranks,
                streams,
                priorities,
                shapes,
                half,
                statements,
                options,
            })
        },
    )
}

impl World {
    /// The text of the file.
    pub fn text(&self) -> String {
        self.text_at("iteration")
    }

    /// Number of iterations after which the program repeats, from its conditions.
    pub fn cycle(&self) -> u64 {
        let lcm = |cycle: u64, of: u64| (cycle..).step_by(cycle as usize).find(|sum| sum % of == 0).unwrap_or(cycle);
        let turns = self.statements.iter().filter_map(|statement| match statement.condition {
            Condition::Turn { of, .. } => Some(of),
            _ => None,
        });
        turns.fold(1, lcm)
    }

    /// The text with another expression in place of the iteration's number.
    pub fn text_at(&self, iteration: &str) -> String {
        let dtype = if self.half { "bf16" } else { "f32" };
        let mut text = String::from("//! A random program.\n\n");
        for stream in 0..self.streams {
            let priority = match (self.priorities, stream % 3) {
                (true, 1) => "(priority: high)",
                (true, 2) => "(priority: low)",
                _ => "",
            };
            text += &format!("stream s{stream}{priority}\n");
        }
        for (family, (rows, columns)) in self.shapes.iter().enumerate() {
            text += &format!("buffer b{family}[3]: {dtype}[{rows}, {columns}]\n");
            text += &format!("buffer h{family}[3]: {dtype}[{rows}, {columns}] in pinned\n");
            text += &format!("buffer i{family}: i32[{rows}] = iota\n");
            text += &format!("buffer t{family}: {dtype}[{columns}, {rows}]\n");
            // A part for each rank.
            text += &format!("buffer all{family}[2]: {dtype}[world, {rows}, {columns}]\n");
        }
        text += &format!("\nstep{} {{\n", self.options);
        // A rank must have something to run.
        if !self.statements.iter().any(Statement::everywhere) {
            text += "  on s0 { nop() }\n";
        }
        for (number, statement) in self.statements.iter().enumerate() {
            text += &self.statement(number, statement, iteration);
        }
        text + "}\n"
    }

    /// Labels of operations that every rank has.
    pub fn labels(&self) -> Vec<String> {
        let labelled = |statement: &Statement| statement.everywhere() && !statement.work.together();
        let labels = (0..).zip(&self.statements).filter(|(_, statement)| labelled(statement));
        labels.map(|(number, _): (usize, _)| format!("o{number}")).collect()
    }

    fn statement(&self, number: usize, statement: &Statement, iteration: &str) -> String {
        let &Statement { stream, family, from, to, condition, work } = statement;
        let dtype = if self.half { "bf16" } else { "f32" };
        let (x, y) = (format!("b{family}[{from}]"), format!("b{family}[{to}]"));
        let (h, g) = (format!("h{family}[{from}]"), format!("h{family}[{to}]"));
        let (all, other) = (format!("all{family}[0]"), format!("all{family}[1]"));
        let via = |kernel: bool| if kernel { ", via: kernel" } else { "" };
        let operation = match work {
            Work::Map => format!("map({x} * 2 -> {y})"),
            Work::Softmax => format!("softmax({x} -> {y})"),
            Work::Gelu => format!("map(gelu({x}) * sigmoid({x}) -> {y})"),
            Work::Gemm { m, n, k } => format!("gemm({dtype}[{m}, {k}], {dtype}[{k}, {n}])"),
            Work::Transpose => format!("transpose({x} -> t{family})"),
            Work::Gather => format!("gather({x}, i{family} -> {y})"),
            Work::Spin { microseconds, units } => format!("spin({microseconds}us, units: {units})"),
            Work::Fill => format!("fill(1 -> {y})"),
            Work::Memset => format!("memset(0 -> {y})"),
            Work::CopyOnDevice => format!("copy({x} -> {y})"),
            Work::CopyToDevice { kernel } => format!("copy({h} -> {y}{})", via(kernel)),
            Work::CopyToHost { kernel } => format!("copy({x} -> {g}{})", via(kernel)),
            Work::ReadPinned => format!("map({h} * 2 -> {y})"),
            Work::WritePinned => format!("map({x} * 2 -> {g})"),
            Work::GatherPinned => format!("gather({h}, i{family} -> {y})"),
            Work::AllReduce => format!("all_reduce({x} -> {y})"),
            Work::AllGather => format!("all_gather({x} -> {all})"),
            Work::ReduceScatter => format!("reduce_scatter({all} -> {y})"),
            Work::AllToAll => format!("all_to_all({all} -> {other})"),
            Work::Broadcast => format!("broadcast({x} -> {y})"),
            Work::Barrier => "barrier()".to_owned(),
            Work::Exchange => {
                format!("group {{ send({x}, to: (rank + 1) % world)  recv(-> {y}, from: (rank + world - 1) % world) }}")
            }
            Work::SendOne => {
                format!("if rank == 0 {{ send({x}, to: world - 1) }}  if rank == world - 1 {{ recv(-> {y}, from: 0) }}")
            }
            Work::CopyToPeer { kernel } => format!("copy({x} -> {y} at (rank + 1) % world{})", via(kernel)),
        };
        let labelled = if work.together() { operation } else { format!("o{number}: {operation}") };
        let on = format!("on s{stream} {{ {labelled} }}");
        match condition {
            Condition::Turn { of, is } => format!("  if {iteration} % {of} == {is} {{ {on} }}\n"),
            Condition::EvenRank if !work.together() => format!("  if rank % 2 == 0 {{ {on} }}\n"),
            _ => format!("  {on}\n"),
        }
    }
}
