//! Advice on chains that `--fuse` would merge: the gains are what the modelled times fall by with `--fuse`, and then no
//! chain is left.

use aorta::compile;
use proptest::prelude::*;

use super::*;

/// A step with chains, each of which ends in a buffer of its own.
fn chains() -> impl Strategy<Value = String> {
    let link = (0..8u8, 0..4u8);
    prop::collection::vec(prop::collection::vec(link, 2..6), 1..4).prop_map(|chains| {
        let mut text = "buffer x, r: bf16[2048, 1024]\nbuffer w: bf16[1024]\nbuffer c: bf16[2048, 1]\n".to_owned();
        let mut step = String::new();
        for (chain, links) in chains.iter().enumerate() {
            text += &format!("buffer y{chain}: bf16[2048, 1024]\n");
            let mut value = "x".to_owned();
            for (place, (kind, operand)) in links.iter().enumerate() {
                let other = ["r", "w", "c", "0.5"][usize::from(*operand)];
                let call = match kind {
                    0 => format!("softmax({value}"),
                    1 => format!("rms_norm({value}, w"),
                    2 => format!("layer_norm({value}, w, w"),
                    3 => format!("map(gelu({value})"),
                    4 => format!("map({value} * {value}"),
                    _ => format!("map({value} * 0.5 + {other}"),
                };
                let is_last = place + 1 == links.len();
                let target = if is_last { format!(" -> y{chain}") } else { String::new() };
                value = format!("t{chain}_{place}");
                step += &format!("  {value}: {call}{target})\n");
            }
            // Chains read the same tensor, and would be merged with each other.
            step += "  sync()\n";
        }
        format!("{text}step {{\n{step}}}\n")
    })
}

fn fused(text: &str) -> compile::Compiled {
    let options = compile::CompileOptions { fuse: true, ..compile::CompileOptions::default() };
    common::compile("t.aorta", text, &options).unwrap_or_else(|errors| panic!("{text}\n{errors}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::common::effort::due_draws(60)))]

    #[test]
    fn the_gain_of_a_chain_is_what_fuse_saves(text in chains()) {
        let profile = uncached();
        let found = advice_on(&text, &profile);
        let gains: i64 = of_code(&found, "unfused_chain").iter().map(|one| one.gain.most_ns.0).sum();
        let compiled = fused(&text);
        let rank = &compiled.ranks[0];
        let sim = Sim::new(profile.clone());
        let schedule = common::placed(&rank.program, &rank.plan, &sim, &schedule::ScheduleOptions::default());
        let after: f64 =
            schedule::durations(&rank.program, &schedule, rank.program.rank, &profile).iter().flatten().sum();
        let saved = modelled(&text, &profile) - after;
        prop_assert!((gains as f64 - saved).abs() <= 3.0, "{gains} and {saved}\n{text}");
        let merged = compiled.fused.iter().map(|fusion| fusion.merged.len()).sum::<usize>();
        prop_assert_eq!(of_code(&found, "unfused_chain").len(), merged, "{}", text);
        let left = schedule::advise(&rank.program, &rank.plan, &schedule, &profile);
        prop_assert!(of_code(&left, "unfused_chain").is_empty(), "{text}\n{left:?}");
    }
}
