//! `aorta explain model`: counts the arithmetic and the bytes of a transformer, without a device.

use clap::Args;

use crate::base::DType;
use crate::cli::error::InputError;
use crate::cli::inputs::{library, load};
use crate::cli::io::outputs::PageArgs;
use crate::cli::{CliResult, ConfigArgs, DONE, WorkloadArgs};
use crate::compile::RankCount;
use crate::config::Profile;
use crate::report::PageContent;
use crate::report::model_cost::{ModelCost, ModelSizes};

/// Size of an attention head if the number of heads is not given. Used only if it divides the width.
const HEAD: u64 = 128;

/// Maximum of each size, so that products of several fit into 64 bits.
const LARGEST: u64 = 1 << 24;

#[derive(Debug, Args)]
pub struct ModelArgs {
    /// Layers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=65536))]
    layers: u64,
    /// Width of the model
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=LARGEST))]
    hidden: u64,
    /// Tokens of a sequence
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=LARGEST))]
    seq: u64,
    /// Attention heads; by default as many as have 128 elements each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=256))]
    heads: Option<u64>,
    /// Heads of keys and values; by default as many as attention heads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=256))]
    kv_heads: Option<u64>,
    /// Width of the feed-forward network, which has three matrices; by default 4 times the model's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=LARGEST))]
    ffn: Option<u64>,
    /// Experts of each feed-forward network, which have two matrices each
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u64).range(1..=1024))]
    experts: u64,
    /// Experts that a token takes; by default 2
    #[arg(long, value_name = "N", requires = "experts", value_parser = clap::value_parser!(u64).range(1..=64))]
    top_k: Option<u64>,
    /// Tokens that the model knows
    #[arg(long, value_name = "N", default_value = "32000")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=LARGEST))]
    vocab: u64,
    /// Sequences
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u64).range(1..=4096))]
    batch: u64,
    /// Element type of weights and activations
    #[arg(long, value_name = "TYPE", default_value = "bf16", value_parser = ["bf16", "f16", "f32"])]
    dtype: String,
    /// Put the peaks of a device beside it, such as `h200`
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

impl ModelArgs {
    /// The sizes, if they make a model.
    fn sizes(&self) -> Result<ModelSizes, InputError> {
        let by_size = self.hidden.is_multiple_of(HEAD).then_some(self.hidden / HEAD);
        let heads = self.heads.or(by_size).unwrap_or(1);
        let kv_heads = self.kv_heads.unwrap_or(heads);
        let bad = |option: &str, value: u64, why: String| {
            Err(InputError::bad_value(
                option,
                &value.to_string(),
                &why,
                "give another number of heads, or another width",
            ))
        };
        let size = self.hidden / heads;
        if !self.hidden.is_multiple_of(heads) || !size.is_multiple_of(2) {
            return bad("`--heads`", heads, format!("a head has an even part of the width, which is {}", self.hidden));
        }
        if !heads.is_multiple_of(kv_heads) {
            return bad("`--kv-heads`", kv_heads, format!("each of them is shared by as many of the {heads} heads"));
        }
        let top_k = self.top_k.unwrap_or(2).min(self.experts);
        if self.top_k.is_some_and(|given| given > self.experts) {
            let why = format!("a token takes different experts, and there are {}", self.experts);
            return Err(InputError::bad_value(
                "`--top-k`",
                &self.top_k.unwrap_or(0).to_string(),
                &why,
                "give more `--experts`",
            ));
        }
        Ok(ModelSizes {
            layers: self.layers,
            hidden: self.hidden,
            heads,
            kv_heads,
            ffn: self.ffn.unwrap_or(4 * self.hidden),
            experts: self.experts,
            top_k,
            vocab: self.vocab,
            seq: self.seq,
            batch: self.batch,
            dtype: DType::from_name(&self.dtype).unwrap_or(DType::BF16),
        })
    }
}

pub fn run(args: &ModelArgs) -> CliResult {
    args.page.check()?;
    let sizes = args.sizes()?;
    let profile = args.device.as_deref().map(Profile::named).transpose()?;
    // The layers of a transformer are alike, so the file is compiled with one layer, and the figures of its operations are
    // multiplied by the number of layers. No memory is allocated for that, so models larger than the device are counted too.
    let values = [
        ("layers", 1),
        ("hidden", sizes.hidden),
        ("heads", sizes.heads),
        ("kv_heads", sizes.kv_heads),
        ("ffn", sizes.ffn),
        ("expert_count", sizes.experts),
        ("top_k", sizes.top_k),
        ("vocab", sizes.vocab),
        ("seq", sizes.seq),
        ("batch", sizes.batch),
    ];
    let set = values.iter().map(|(name, value)| format!("{name}={value}"));
    let set = set.chain([format!("dtype={}", sizes.dtype.name())]).collect();
    let workload = WorkloadArgs { set, ..WorkloadArgs::default() };
    let mut settings = load::settings(&ConfigArgs::default())?;
    settings.max_memory.0 = u64::MAX;
    let text = library::find("transformer").map(load::WorkloadText::shipped);
    let text = text.ok_or_else(|| library::unknown("transformer"))?;
    // The arguments are valid one by one, so only a tensor can be too large. Its location in the shipped file would not
    // help the user.
    let loaded = load::load(&text, &workload, &settings, RankCount::Exactly(1)).map_err(|error| {
        let (text, sizes) = (error.text(), values.map(|(name, value)| format!("{name} {value}")).join(", "));
        let first = text.split("; ").next().unwrap_or_default();
        let help = "give a smaller `--hidden`, `--ffn`, `--vocab`, `--seq` or `--batch`";
        InputError::bad_value("the model", &sizes, first, help)
    })?;
    let cost = ModelCost::of(sizes, loaded.compiled.program(), profile.as_ref());
    let page = cost.page();
    args.page.show(std::slice::from_ref(&page), || cost.to_json())?;
    args.page.write_html(|| PageContent::reports(vec![page]))?;
    Ok(DONE)
}
