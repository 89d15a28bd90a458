//! `route`: the assignment of tokens to experts.

mod choice;
mod cost;
mod kernel;

use super::*;
pub use choice::SelectionRules;
use choice::routed;

/// `route(probs, k: n, capacity: m)`.
pub struct Route;

impl Operation for Route {
    signature! {
        name: "route",
        summary: "routes tokens to their top k experts with a capacity: the rows of each expert, their weights, and the number of rows \
    dropped over capacity",
        category: Category::Movement,
        inputs: &[Input::Tensor("probs"), Input::Optional("bias")],
        outputs: &["slots", "weights", "dropped"],
        options: &[
            OptionSpec::required(
                "k",
                OptionType::Int(1, 1024),
                "number of experts per row; ties go to the lower index",
            ),
            OptionSpec::required("capacity", OptionType::Int(1, 1 << 30), "maximum number of rows per expert"),
            OptionSpec::bool("normalize", false, "normalize the k weights of each row to a sum of 1"),
            OptionSpec::word(
                "scores",
                &["given", "softmax", "sigmoid"],
                "`given`: the input holds probabilities; otherwise it holds logits, and this function is applied",
            ),
            OptionSpec::int("groups", 1, MAX_GROUPS, 1, "number of expert groups of equal size"),
            OptionSpec::int("group_k", 0, MAX_GROUPS, 0, "number of groups that a row may choose from; 0 for all"),
            OptionSpec::word(
                "group_score",
                &["best", "best_two"],
                "score of a group: its highest probability, or the sum of its two highest",
            ),
        ],
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        let probs = &call.inputs[0];
        call.needs_float(probs, "floating-point probabilities")?;
        let &[tokens, experts] = &*probs.tensor.dims else {
            return Err(call.bad_shape(probs, "two dimensions: rows and experts"));
        };
        let k = call.attrs.int("k") as u64;
        if k > experts {
            let why = format!("it asks for {k} of {experts} experts");
            return Err(call.bad_option("k", why, format!("write 1 to {experts}")));
        }
        self.check_groups(call, experts, k)?;
        if let Some(bias) = call.inputs.get(1) {
            call.needs_float(bias, "a floating-point number for each expert")?;
            if *bias.tensor.dims != [experts] {
                let (has, found) = (format!("this has {experts} experts"), "this is the bias".to_owned());
                return Err(call.differs(0, has, 1, found, &format!("the bias has one dimension of {experts}")));
            }
        }
        if tokens > i32::MAX as u64 {
            return Err(call.bad_shape(probs, "at most 2^31 rows"));
        }
        let slots = Dims::from([experts, call.attrs.int("capacity") as u64]);
        let dropped = Dims::from([experts]);
        Ok(vec![
            call.output(0, DType::I32, slots)?,
            call.output(1, probs.tensor.dtype, slots)?,
            call.output(2, DType::I32, dropped)?,
        ])
    }

    fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        cost::of_launches(spec)
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        routed(spec, inputs, outputs);
    }

    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        let radii = routed(spec, inputs, outputs);
        radii.map(Tolerance::Within).into()
    }

    /// Returns two kernels. In the first, 32 threads select the experts of a row and set a bit for each row and expert. In
    /// the second, a block per expert finds the slots of its rows by counting bits.
    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        kernel::launches(spec)
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::route(rule)
    }
}

impl Route {
    /// Returns an error unless groups divide the experts evenly and the selected groups have at least `k` experts.
    fn check_groups(&self, call: &Call, experts: u64, k: u64) -> Result<(), OpError> {
        let [groups, group_k] = ["groups", "group_k"].map(|name| call.attrs.int(name) as u64);
        if !experts.is_multiple_of(groups) {
            let why = format!("{experts} experts make no {groups} groups of one size");
            return Err(call.bad_option("groups", why, format!("write a divisor of {experts}")));
        }
        let size = experts / groups;
        if group_k > groups {
            let why = format!("it asks for {group_k} of {groups} groups");
            return Err(call.bad_option("group_k", why, format!("write 1 to {groups}, or 0 for all")));
        }
        if group_k > 0 && group_k * size < k {
            let why = format!("{group_k} groups of {size} experts have fewer than the {k} that a row chooses");
            return Err(call.bad_option("group_k", why, format!("write {} or more", k.div_ceil(size))));
        }
        if call.attrs.word("group_score") == "best_two" && size < 2 {
            let why = format!("its {groups} groups have one expert each");
            return Err(call.bad_option("group_score", why, "write `group_score: best`".to_owned()));
        }
        Ok(())
    }
}

/// Maximum number of groups of experts: one for each cooperating thread.
const MAX_GROUPS: i64 = 32;

/// Number of threads that select the experts of a row, and number of rows whose bits share a word.
const THREADS_OF_A_ROW: u64 = 32;
