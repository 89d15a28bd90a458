//! The catalogue of the shipped workloads, grouped by the question that they answer.

use aorta::syntax::ast::DeclKind;

use super::{code, table};
use crate::common::shipped;

/// Questions, with the workloads that answer them.
const QUESTIONS: [(&str, &[&str]); 10] = [
    (
        "What do launches, waits and queues cost?",
        &[
            "tiny_kernel_stress",
            "hetero_kernels",
            "large_gemm_only",
            "queue_switch",
            "graph_subgraphs",
            "compiled_regions",
        ],
    ),
    (
        "What do links and copy engines sustain?",
        &["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "size_sweep", "engines"],
    ),
    (
        "Does communication hide behind computation?",
        &[
            "comms_compute_overlap",
            "ddp_buckets",
            "fsdp_overlap",
            "fsdp_tp",
            "grad_accum",
            "context_parallel",
            "dual_batch_overlap",
        ],
    ),
    ("Do copies and the host keep up?", &["sdma_overlap", "async_dataload", "zero_offload", "kv_offload"]),
    (
        "Which rank do the others wait for?",
        &["moe", "moe_dropless", "expert_parallel", "pipeline_1f1b", "disaggregated"],
    ),
    (
        "How long does a token take?",
        &["prefill_decode", "continuous_batch", "speculative_decode", "lora_switch", "rag_pipeline"],
    ),
    (
        "How fast are single operators, and chains of them?",
        &[
            "matrix_products",
            "activations",
            "normalizations",
            "pools",
            "reductions",
            "convolutions",
            "scans",
            "losses",
            "dot_product_attention",
            "product_chains",
            "convolution_chains",
            "transposed_chains",
        ],
    ),
    ("What does saving memory cost?", &["activation_ckpt"]),
    ("What does training in fp8 gain?", &["fp8_linear"]),
    ("What does a model cost, eager and compiled?", &["attention", "transformer"]),
];

/// The description of a file, from its header: the lines between the question and what was measured.
fn description(about: &[String]) -> String {
    let lines = about[1..].iter().take_while(|line| !line.starts_with("Measured "));
    lines.map(|line| line.trim()).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n  ")
}

/// The figures that a header states as measured: its lines from the one that begins with `Measured` on.
fn measured(about: &[String]) -> String {
    let lines = about.iter().skip_while(|line| !line.starts_with("Measured "));
    lines.map(String::as_str).collect::<Vec<_>>().join(" ")
}

/// For each question a table of the workloads, with their own question, their presets, their figures and what was
/// measured, and a description of each.
pub fn catalogue() -> String {
    let files = shipped::all();
    let mut listed: Vec<&str> = QUESTIONS.iter().flat_map(|(_, names)| *names).copied().collect();
    listed.sort_unstable();
    let workloads = files.iter().filter(|file| file.path.starts_with("workloads/"));
    let mut stems: Vec<&str> = workloads.map(shipped::Shipped::stem).collect();
    stems.sort_unstable();
    assert_eq!(listed, stems, "each workload answers one question");
    let group = |(question, names): &(&str, &[&str])| {
        let rows = names.iter().map(|name| {
            let file = files.iter().find(|file| file.stem() == *name).expect("it is listed");
            let ast = file.ast();
            let figures: Vec<&str> = ast
                .decls
                .iter()
                .filter_map(|decl| match &decl.kind {
                    DeclKind::Metric { name, .. } => Some(ast.names.name(name.symbol)),
                    _ => None,
                })
                .collect();
            let presets = file.presets();
            [
                format!("[`{name}`](../{})", file.path),
                ast.about[0].clone(),
                code(presets.iter().map(String::as_str)),
                code(figures),
                measured(&ast.about),
            ]
        });
        let descriptions: String = names
            .iter()
            .map(|name| {
                let file = files.iter().find(|file| file.stem() == *name).expect("it is listed");
                format!("- **`{name}`**: {}\n", description(&file.ast().about))
            })
            .collect();
        let head = ["workload", "asks", "presets", "figures", "measured"];
        format!("### {question}\n\n{}\n{descriptions}", table(head, rows))
    };
    QUESTIONS.iter().map(group).collect::<Vec<_>>().join("\n")
}
